"""Words and names as people and shells read them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.errors import BadArguments
from holdfast.harmless import UNSAFE, harmless, is_harmless, written

# What may be a name or a text that we print: of a queue, task, key, worker, operator or reason.


class BadName(BadArguments):
    """A name contains a character that can't be displayed."""

    number = "HF1204"


def checked_name(what: str, name: str) -> str:
    """Returns the name, or raises BadName if it contains a control character that terminals or logs would act on."""
    found = re.search(UNSAFE, name)
    if found is not None:
        raise BadName(
            f"{what} has the control character {written(found[0])} in it: '{harmless(name)[:80]}'. Names are made of "
            "characters to read. What plain SQL wrote under such a name is reached by its jobs' ids, or by a filter"
        )
    return name


def no_id(text: str) -> str:
    """Why this is not the id of a job."""
    if ":" not in text:
        return "ids here are numbers"
    return f"it looks like a filter, and this takes one id; ids that match: holdfast jobs list {named(text)}"


def plural(word: str, n: int) -> str:
    return word if n == 1 else word + "s"


def quoted(text: str) -> str:
    """Quoted for a shell, as one word. Characters that may not be shown are escaped in the way of bash and zsh."""
    import shlex

    if is_harmless(text):
        return shlex.quote(text)
    return "$'" + harmless(text.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def fits_in_a_list(queue: str) -> bool:
    """Can `-q mail,news` name this queue? Plain SQL may have written any name."""
    return is_harmless(queue) and "," not in queue and queue == queue.strip()


def to_serve(queue: str) -> str:
    """The command that starts a worker for this queue, or for all queues if its name can't be passed as an option."""
    return "holdfast worker APP" + (f" -q {quoted(queue)}" if fits_in_a_list(queue) else ", which serves every queue")


def named(text: str) -> str:
    """A name as an argument of a command: one word that is not taken for an option."""
    return ("-- " if text.startswith("-") else "") + quoted(text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that nobody knows."""
    near = nearest(name, known)
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names most like this one."""
    from difflib import get_close_matches

    return get_close_matches(name, sorted(known), n=3)
