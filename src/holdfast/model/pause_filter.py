"""A filter that stands: what a pause may mean of the jobs that wait and of those that will come. Its text, in one
order, is the pause's name, so the same filter written otherwise is the same pause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.model.filter import BadFilter, Filter, parse

LONGEST = 500  # characters: the name stands in an index
_BARE = r'[^\s",\\]+'


def meant(where: str | Mapping[str, Any], *, queue: str | None = None, task: str | None = None) -> Filter:
    """The jobs a pause is for: a filter's text, or arguments by name, with the queue and the task named beside it."""
    if isinstance(where, Mapping):
        where = " ".join(f"args.{name}:{_quoted(_plain(name, value))}" for name, value in where.items())
    if not isinstance(where, str):
        raise BadFilter(f"where is a filter ('args.customer:42') or arguments by name, not {where!r:.80}")
    filter = parse(where).narrowed(queue=queue, task=task)
    others = replace(filter, queues=(), tasks=(), args=())
    if others or not filter:
        what = "says nothing" if not filter else "has more than that"
        raise BadFilter(f"a pause means jobs by args.NAME:, task: and queue:, and {where!r:.80} {what}")
    return Filter(queues=_each(filter.queues), tasks=_each(filter.tasks), args=_each(filter.args))


def text(filter: Filter) -> str:
    """The filter in one order, quoted where it must be: parsing it gives the same again."""
    words = [f"task:{','.join(map(_quoted, filter.tasks))}"] if filter.tasks else []
    words += [f"queue:{','.join(map(_quoted, filter.queues))}"] if filter.queues else []
    words += [f"args.{'.'.join(path)}:{_quoted(value)}" for path, value in filter.args]
    whole = " ".join(words)
    if len(whole) > LONGEST:
        raise BadFilter(f"the filter of a pause has at most {LONGEST} characters, this one {len(whole)}")
    return whole


def _each(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(set(values)))


def _plain(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return msgspec.json.encode(value).decode()
    raise BadFilter(f"where: {name!r} is compared with a text, a number, true, false or null, not with {value!r:.80}")


def _quoted(value: str) -> str:
    if re.fullmatch(_BARE, value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
