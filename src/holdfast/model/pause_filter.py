"""Pauses by filter: which filters a pause may have, and whether one means a job.

The text of a filter, in one order, is the name of its pause, so the same filter written differently is the same pause,
and the name is all that has to be stored. Whether a pause means a job is decided here and nowhere else: by the desk for
what it has claimed, by whoever holds the jobs that wait, lets them go, or explains why one does not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.model.filter import BadFilter, Filter, as_json, parse, quoted, text

LONGEST = 500  # characters: the name is part of an index
HOLD = "pause:"  # a job held by a pause names it as `pause:<the pause's name>`
_INSIDE = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])


def meant(filter: str, args: Mapping[str, Any] | None = None) -> Filter:
    """The filter of a pause, given as its text and as arguments by name."""
    if not isinstance(filter, str):
        raise BadFilter(f"a filter is a text ('args.customer:42'), not {filter!r:.80}; for arguments by name: args=")
    words = [f"args.{name}:{quoted(_plain(name, value))}" for name, value in (args or {}).items()]
    found = parse(" ".join([filter, *words]))
    others = replace(found, queues=(), tasks=(), args=())
    if others or not found:
        what = "says nothing" if not found else "has more than that"
        raise BadFilter(f"a pause means jobs by args.NAME:, task: and queue:, and {filter!r:.80} {what}")
    return Filter(queues=_each(found.queues), tasks=_each(found.tasks), args=_each(found.args))


def pause_name(filter: Filter) -> str:
    """The name of the pause that this filter makes: its text."""
    whole = text(filter)
    if len(whole) > LONGEST:
        raise BadFilter(f"the filter of a pause has at most {LONGEST} characters, this one {len(whole)}")
    return whole


class PauseFilter(msgspec.Struct, frozen=True):
    """The filter of a pause in force, ready to be asked about jobs. Empty `queues` or `tasks`: any. `args`: each path
    with the JSON texts that match there."""

    name: str
    queues: frozenset[str]
    tasks: frozenset[str]
    args: tuple[tuple[tuple[str, ...], frozenset[str]], ...]

    @classmethod
    def named(cls, name: str) -> PauseFilter | None:
        """The filter of the pause with this name. None: it is not one of ours, so it means no job."""
        try:
            filter = meant(name)
        except BadFilter:
            return None
        args = tuple((path, frozenset(as_json(value))) for path, value in filter.args)
        return cls(name, frozenset(filter.queues), frozenset(filter.tasks), args)

    @property
    def hold(self) -> str:
        """What a job held by this pause is held by."""
        return HOLD + self.name

    def may_mean(self, queue: str, task: str) -> bool:
        """Does it mean jobs of this queue and task, some at least?"""
        return (not self.queues or queue in self.queues) and (not self.tasks or task in self.tasks)

    def means(self, queue: str, task: str, args: bytes) -> bool:
        return self.may_mean(queue, task) and all(_at(path, args) in texts for path, texts in self.args)


def pause_meaning(queue: str, task: str, args: bytes, pauses: Iterable[PauseFilter]) -> PauseFilter | None:
    """The pause that means a job with these arguments: of several the one whose name comes first."""
    found = [pause for pause in pauses if pause.means(queue, task, args)]
    return min(found, key=lambda pause: pause.name, default=None)


def pause_of(held_by: str) -> str:
    """The name of the pause that a job is held by."""
    return held_by.removeprefix(HOLD)


def _at(path: tuple[str, ...], document: bytes) -> str | None:
    """The JSON text at this path in a job's arguments, a string in the way we write it. None: there is nothing. What
    can't be read (half a character, say) is nothing, too: such a job must not hinder others."""
    value = msgspec.Raw(document)
    try:
        for part in path:
            inside = _INSIDE.decode(value)
            if isinstance(inside, dict):
                value = inside[part]
            elif re.fullmatch(r"-?[0-9]+", part):
                value = inside[int(part)]
            else:
                return None
        text = bytes(value).strip().decode()
        return msgspec.json.encode(msgspec.json.decode(text)).decode() if text.startswith('"') else text
    except (msgspec.DecodeError, UnicodeError, LookupError, ValueError, RecursionError):
        return None


def _each(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


def _plain(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    raise BadFilter(f"args: {name!r} is compared with a text, a number, true, false or null, not with {value!r:.80}")
