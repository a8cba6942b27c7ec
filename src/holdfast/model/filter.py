"""The filter grammar: a text that selects jobs, the same on the command line and in programs.

A job must match every word of `state:failed queue:mail since:1h`; `queue:mail,news` matches either queue. `tag:` and
`args.…:` may be given several times. Quote a value with spaces, commas or colons: `error:"connection refused"`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from holdfast.durations import parse_duration
from holdfast.errors import BadArguments
from holdfast.model.fingerprint import LENGTH
from holdfast.model.lifecycle import FINISHED, IN_PLACE, REQUESTS, TRANSITIONS, State
from holdfast.model.text import nearest

DERIVED = ("scheduled", "retrying")  # a queued job that is not due yet: never tried, or tried before
STATES = (*(state.value for state in State), *DERIVED)
QUALIFIERS = (
    "state",
    "queue",
    "task",
    "tag",
    "since",
    "error",
    "group",
    "args.NAME",
    "id",
    "key",
    "worker",
    "source",
    "row",
)

MAX_WORDS = 100  # of a filter: tags and arguments may be given several times
MAX_LENGTH = 1000  # characters of a value: a key may be that long; databases refuse longer patterns

Words = str | Sequence[str] | None


class BadFilter(BadArguments):
    """The text is not a filter; the message names the wrong word and lists the possible ones."""

    number = "HF1203"


class Filter(msgspec.Struct, frozen=True):
    """Which jobs to select. Empty: all of them."""

    states: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # all of them
    since: timedelta | datetime | None = None  # finished, started or created since then, whichever was last
    error: str | None = None  # in the code or the text of its error
    groups: tuple[str, ...] = ()  # of errors: the fingerprints
    args: tuple[tuple[tuple[str, ...], str], ...] = ()  # path and value
    ids: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()  # adopted tables
    rows: tuple[str, ...] = ()  # ids of rows there

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def narrowed(self, *, state: Words = None, queue: Words = None, task: Words = None) -> Filter:
        """The same filter with these values added, as if written in its text; several values match any of them."""
        words = {"states": state, "queues": queue, "tasks": task}
        given = {name: (word,) if isinstance(word, str) else tuple(word) for name, word in words.items() if word}
        _states("state", given.get("states", ()))
        for name in given:
            if getattr(self, name):
                raise BadFilter(f"{name[:-1]} is given in the filter and beside it: say it once")
        return replace(self, **cast(dict[str, Any], given))


ALL = Filter()


def in_state_for(verb: str, filter: Filter) -> Filter | None:
    """The jobs of a filter that are in a state for this verb of people; None: there can't be any."""
    return _in_state(verb, filter, True)


def not_in_state_for(verb: str, filter: Filter) -> Filter | None:
    """The other jobs of the filter; None: there can't be any."""
    return _in_state(verb, filter, False)


def states_for(verb: str) -> list[State]:
    """The states in which people may apply this verb to many jobs."""
    possible = FINISHED if verb == "delete" else IN_PLACE[verb] if verb in IN_PLACE else TRANSITIONS[verb][0]
    if verb in REQUESTS:
        possible |= {State.RUNNING}
    return [state for state in State if state in possible]


def _in_state(verb: str, filter: Filter, fitting: bool) -> Filter | None:
    possible = states_for(verb)
    wanted = filter.states or tuple(state.value for state in State)
    states = tuple(word for word in wanted if ((State.QUEUED if word in DERIVED else word) in possible) == fitting)
    return replace(filter, states=states) if states else None


# A word: a qualifier, a colon, and a value of bare characters and quoted pieces. Or anything else, which is an error.
_WORD = r'\s*(?:([A-Za-z_][\w.\-]*):((?:"(?:[^"\\]|\\.)*"|[^\s"])*)(?=\s|$)|(\S+))'
_PIECE = r'"((?:[^"\\]|\\.)*)"|(,)|([^",]+)'
_ESCAPED = r"\\(.)"
_BARE = r'[^\s",\\]+'


def parse(text: str) -> Filter:
    """Parse a filter, or raise BadFilter naming the wrong word."""
    found: dict[str, Any] = {}
    if "\x00" in text or not _encodable(text):
        raise BadFilter(f"the filter {text!r:.80} has something in it that is not a character")
    for number, match in enumerate(re.finditer(_WORD, text.strip()), 1):
        if number > MAX_WORDS:
            raise BadFilter(f"the filter has more than {MAX_WORDS} words; name several values as in id:42,43")
        qualifier, value, odd = match.groups()
        if odd is not None:
            raise BadFilter(f"{odd!r:.80} is no filter: write qualifier:value{_nearest(odd)}; {_known()}")
        values = _values(value)
        if not values:
            raise BadFilter(f"{match[0].strip()!r:.80} has no value; {_known()}")
        if max(map(len, (qualifier, *values))) > MAX_LENGTH:
            raise BadFilter(f"{match[0].strip()!r:.80} is too long: a value has {MAX_LENGTH:,} characters at most")
        if qualifier.startswith("args."):
            path = tuple(qualifier.split(".")[1:])
            if not all(path):
                raise BadFilter(f"{match[0].strip()!r} names no argument: write args.user_id:42")
            found["args"] = (*found.get("args", ()), (path, _one(qualifier, values)))
            continue
        if qualifier not in _READ:
            raise BadFilter(f"there is no qualifier {qualifier!r:.80}{_nearest(qualifier)}; {_known()}")
        name, read = _READ[qualifier]
        if name == "tags":
            found["tags"] = (*found.get("tags", ()), _one(qualifier, values))
        elif name in found:
            raise BadFilter(f"{qualifier} is given twice: {qualifier}:{','.join(values):.80},… means either")
        else:
            found[name] = read(qualifier, values)
    return Filter(**found)


def words(text: str) -> list[str]:
    """The words of a filter's text, as they were written."""
    return [match[0].strip() for match in re.finditer(_WORD, text.strip())]


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _values(text: str) -> tuple[str, ...]:
    """The values of a word, separated by commas outside of quotes."""
    values = [""]
    for quoted, comma, bare in re.findall(_PIECE, text):
        if comma:
            values.append("")
        else:
            values[-1] += bare or re.sub(_ESCAPED, r"\1", quoted)
    return tuple(value for value in values if value)


def _one(qualifier: str, values: tuple[str, ...]) -> str:
    if len(values) > 1:
        raise BadFilter(f"{qualifier} takes one value, not {', '.join(values):.80}; if it holds a comma, quote it")
    return values[0]


def _many(qualifier: str, values: tuple[str, ...]) -> tuple[str, ...]:
    return values


def _states(qualifier: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if value not in STATES:
            near = nearest(value, STATES)
            hint = f", perhaps {near[0]!r}" if near else ""
            raise BadFilter(f"there is no state {value!r}{hint}; there are {', '.join(STATES)}")
    return values


def _groups(qualifier: str, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not re.fullmatch(rf"[0-9a-f]{{{LENGTH}}}", value):
            raise BadFilter(
                f"group:{value} names no group of errors: `holdfast jobs list --group-by error` lists their ids"
            )
    return values


def _since(qualifier: str, values: tuple[str, ...]) -> timedelta | datetime:
    text = _one(qualifier, values)
    try:
        if re.fullmatch(r"[\d.]+[a-z]", text):
            return parse_duration(text)
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadFilter(
            f"since:{text} is no time: write how long ago (30s, 15m, 1h, 7d, 2w) or when "
            '(2026-01-31, "2026-01-31T12:00Z"; UTC unless it says otherwise)'
        ) from None


def as_json(value: str) -> tuple[str, ...]:
    """How JSON may write a value of a filter: as a text, and as the number, true, false or null that it spells."""
    texts = [msgspec.json.encode(value).decode()]
    try:
        if not isinstance(msgspec.json.decode(value), str | list | dict):
            texts.append(value)
    except (msgspec.DecodeError, RecursionError):
        pass
    return tuple(texts)


_READ: dict[str, tuple[str, Callable[[str, tuple[str, ...]], Any]]] = {
    "state": ("states", _states),
    "task": ("tasks", _many),
    "queue": ("queues", _many),
    "tag": ("tags", _one),
    "since": ("since", _since),
    "error": ("error", _one),
    "group": ("groups", _groups),
    "id": ("ids", _many),
    "key": ("keys", _many),
    "worker": ("workers", _many),
    "source": ("sources", _many),
    "row": ("rows", _many),
}


def text(filter: Filter) -> str:
    """The filter in one order, quoted where necessary: parsing it gives the same filter."""
    words = []
    for qualifier, (field, _) in _READ.items():
        value = getattr(filter, field)
        if isinstance(value, timedelta):
            seconds = f"{value.total_seconds():f}".rstrip("0").rstrip(".")
            words.append(f"{qualifier}:{seconds}s")
        elif isinstance(value, datetime):
            words.append(f'{qualifier}:"{value.isoformat()}"')
        elif isinstance(value, str) or field == "tags":
            words += [f"{qualifier}:{quoted(one)}" for one in ([value] if isinstance(value, str) else value)]
        elif value:
            words.append(f"{qualifier}:{','.join(map(quoted, value))}")
    words += [f"args.{'.'.join(path)}:{quoted(value)}" for path, value in filter.args]
    return " ".join(words)


def quoted(value: str) -> str:
    """A value as it is written in a filter."""
    if re.fullmatch(_BARE, value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _nearest(word: str) -> str:
    if len(word) > MAX_LENGTH:
        return ""
    if word in STATES:
        return f", perhaps 'state:{word}'"
    if word.isdecimal():
        return f", perhaps 'id:{word}'"
    if word in QUALIFIERS:
        return f", as in '{word}:…'"
    near = nearest(word.partition(":")[0], _READ)
    return f", perhaps {near[0]!r}" if near else ""


def _known() -> str:
    return f"there are {', '.join(QUALIFIERS)}"
