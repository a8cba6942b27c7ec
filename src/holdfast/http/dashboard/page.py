"""What a page of the dashboard is, and what a form on it does. `pages.py` has the tables of both."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.model.access import Role

if TYPE_CHECKING:
    from holdfast.app import Holdfast


T = TypeVar("T")


class NoQuery(msgspec.Struct, frozen=True):
    """A page without parameters."""


@dataclass(frozen=True)
class Look:
    """What somebody wants to see: the names in the path, and the parameters as the page's `query` has them.
    `seldom(key, seconds, read)` reads a part that need not be new each time."""

    app: Holdfast
    path: Mapping[str, str]
    query: Any
    seldom: Callable[[Hashable, float, Callable[[], T]], T] = lambda key, seconds, read: read()


@dataclass(frozen=True)
class Page:
    """`load` reads what the template of the same name shows, on a thread. What it returns is shared by all who look at
    this page with this query, whatever their role. `tick`: seconds between two reads while somebody watches; 0: it is
    read once."""

    name: str
    path: str
    load: Callable[[Look], dict[str, Any]]
    query: type[msgspec.Struct] = NoQuery
    role: Role = "viewer"
    tick: float = 2.0

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path) + "$")


@dataclass(frozen=True)
class Fragment(Page):
    """A piece that a page asks for when it needs it: its template stands alone, and has no links, since they would lead
    from the page that shows it. `asks`: a worker is asked, which may take long and writes, so it is neither shared nor
    read as pages are."""

    asks: bool = False


@dataclass(frozen=True)
class Doing:
    """What somebody asked for with a form: who, where, and its fields."""

    app: Holdfast
    by: str
    path: Mapping[str, str]
    form: Mapping[str, str]
    many: Mapping[str, list[str]] = field(default_factory=dict)  # of fields that occur more than once, each value

    def text(self, name: str) -> str | None:
        """A field, or None if it is missing or blank."""
        return self.form.get(name, "").strip() or None


@dataclass(frozen=True)
class Done:
    """What to say about it, if anything, on the page that is shown next: `to`, from the root, or where the form was."""

    said: str
    to: str | None = None
    wrong: bool = False  # it was refused
    kept: Mapping[str, str] | None = None  # the page `to` is the answer itself, with these values: what somebody typed


@dataclass(frozen=True)
class Action:
    """What a form does. It is sent to `path`; `act` says what became of it, or raises an error of ours, which is shown
    above the page that the form was on."""

    path: str
    act: Callable[[Doing], Awaitable[Done]]
    role: Role = "operator"


@dataclass(frozen=True)
class Offer(Action):
    """A button on every page, for who may use it: a server can have such of its own. `label`: what stands on it;
    `sentence`: what it does."""

    label: str = ""
    sentence: str = ""
