"""Turns views into HTML: the templates, and how values are written in them. Everything is escaped unless it is markup
that was made here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from holdfast.harmless import harmless
from holdfast.http.dashboard.page import Offer
from holdfast.http.dashboard.shown import compact, cut
from holdfast.model.access import ROLES, Access, suffices
from holdfast.model.durations import relative_to, short_duration
from holdfast.model.filter import quoted
from holdfast.model.job import COUNTED, progress_in_words

HERE = Path(__file__).parent
STATIC = HERE / "static"
MENU = (  # what the navigation shows: name, path, title, the key after `g`
    ("overview", "", "Overview", "o"),
    ("jobs", "jobs", "Jobs", "j"),
    ("errors", "errors", "Errors", "e"),
    ("queues", "queues", "Queues", "q"),
    ("workers", "workers", "Workers", "w"),
    ("schedules", "schedules", "Schedules", "s"),
    ("bulk", "bulk", "Bulk", "b"),
    ("audit", "audit", "Audit", "a"),
)

WITHIN = {"job": "jobs", "replay": "jobs", "group": "errors", "bulk_new": "bulk"}  # pages below those of the menu


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "ago": ago, "compact": compact, "count": count, "cut": cut, "duration": duration,
        "instant": instant, "instants": instants, "lines": lines,
        "milliseconds": milliseconds, "parameter": parameter, "plain": plain, "pretty": pretty, "rate": rate,
        "size": size, "progress_in_words": progress_in_words,
    }  # fmt: skip
    made.globals |= {"asset": asset, "menu": MENU, "within": WITHIN, "query": query, "filter_of": filter_of}
    return made


def page(
    name: str, view: Mapping[str, Any], *, base: str, access: Access, here: str, live: str | None,
    said: tuple[str, bool] | None, signed_in: bool, origin: str, offers: Sequence[Offer] = (),
) -> str:  # fmt: skip
    """A whole page. `base` leads from it to the root, `here` from the root to it; `live`: where it can be watched;
    `said`: what became of the form that led here, and whether it was refused; `origin`: the address of our root."""
    seen = digest(part(name, view, base=base, access=access)) if live else ""
    return _rendered(
        name,
        view,
        access,
        layout="page.html",
        base=base,
        here=here,
        live=live,
        seen=seen,
        said=said,
        signed_in=signed_in,
        offers=offers,
        whole=True,
        origin=origin,
    )


def part(name: str, view: Mapping[str, Any], *, base: str, access: Access) -> str:
    """Only what changes of a page. It has instants instead of `3s ago`, so that time alone does not change it."""
    return _rendered(name, view, access, layout="part.html", base=base, whole=False)


def fragment(name: str, view: Mapping[str, Any], *, access: Access) -> str:
    """A piece of a page."""
    return _rendered(name, view, access, whole=True)


def refusal(detail: str) -> str:
    """What stands in place of a piece that can't be had."""
    return Markup('<p class="said wrong" role="alert">{}</p>').format(plain(detail))


def problem(detail: str, number: str, title: str, *, base: str, here: str, sign_in: bool) -> str:
    """A page that says what went wrong. `sign_in`: an API key might help."""
    return environment().get_template("problem.html").render(
        detail=detail, number=number, title=title, base=base, here=here, sign_in=sign_in, name="problem", menu=(),
        said=None, signed_in=False, offers=(), live=None, layout="page.html", access=None, may={},
        now=datetime.now(UTC), whole=True,
    )  # fmt: skip


def digest(html: str) -> str:
    return hashlib.sha256(html.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _rendered(name: str, view: Mapping[str, Any], access: Access, **more: Any) -> str:
    may = {role: suffices(access.role, role) for role in ROLES}
    return (
        environment().get_template(f"{name}.html").render({**view, "name": name, "may": may, "access": access, **more})
    )


@cache
def assets() -> frozenset[str]:
    """The names of all static files."""
    return frozenset(str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file())


@cache
def asset(name: str) -> str:
    """The address of a static file, which changes with its content: browsers may keep it for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
    return f"assets/{name}?v={digest}"


# -- how values are written -------------------------------------------------------------------------------------------


def plain(text: object) -> str:
    """A text of somebody else's on one line, without control characters."""
    return harmless(str(text))


def lines(text: str) -> str:
    """A text of somebody else's over several lines."""
    return harmless(text, lines=True)


def instant(at: datetime | None) -> str:
    """For people who want it exactly."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@jinja2.pass_context
def ago(context: jinja2.runtime.Context, at: datetime | None) -> Markup:
    """How far an instant lies back or ahead of the page's `now`, with the instant itself on hover. The script keeps it
    up to date."""
    if at is None:
        return Markup("")
    text = relative_to(context["now"], at) if context["whole"] else instant(at)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), instant(at), text)


@jinja2.pass_context
def instants(context: jinja2.runtime.Context, text: str) -> Markup:
    """A text of ours that names instants with how far they are: these are written as `ago` does, so that they stay
    true while nothing is sent."""
    pieces = re.split(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC \([^()]*\)", text)
    said = Markup("")
    for n, piece in enumerate(pieces):
        if n % 2:
            at = datetime.fromisoformat(piece).replace(tzinfo=UTC)
            said += Markup("{} ({})").format(instant(at), ago(context, at))
        else:
            said += Markup("{}").format(plain(piece))
    return said


def count(number: int, capped: bool = False) -> str:
    """`12,345`, or `10,000+` where no more are counted."""
    return f"{min(number, COUNTED):,}+" if capped and number >= COUNTED else f"{number:,}"


def duration(seconds: float | None) -> str:
    return "" if seconds is None else short_duration(seconds)


def milliseconds(value: float | None) -> str:
    return "-" if value is None else short_duration(value / 1000)


def parameter(value: Any, name: str) -> str:
    """Of an operator's call: seconds as people say them."""
    return short_duration(value) if name in ("delay", "spread") and isinstance(value, (int, float)) else str(value)


def size(octets: int | None) -> str:
    return "" if octets is None else f"{octets / 1e6:,.0f} MB"


def rate(a_minute: float) -> str:
    """`1,200`, `3.5`, `0`."""
    return f"{a_minute:,.0f}" if a_minute >= 10 or not a_minute else f"{a_minute:.2g}"


def pretty(value: Any) -> str:
    """JSON over several lines. Numbers stay exact: nothing of it passes through a browser's numbers."""
    return harmless(json.dumps(value, indent=2, ensure_ascii=False), lines=True)


def query(**parameters: Any) -> str:
    """Parameters for an address; those that are None or empty are left out."""
    given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
    return "?" + urlencode(given, quote_via=quote) if given else ""


def filter_of(**words: str) -> str:
    """A filter that selects what has these values: `filter_of(queue="a b")` is `queue:"a b"`."""
    return " ".join(f"{name}:{quoted(value)}" for name, value in words.items())
