"""Words and names as people and shells read them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.harmless import harmless, is_harmless


def plural(word: str, n: int) -> str:
    return word if n == 1 else word + "s"


def quoted(text: str) -> str:
    """As a shell takes it: one word. What may not be shown as it is, is written as bash and zsh read it."""
    import shlex

    if is_harmless(text):
        return shlex.quote(text)
    return "$'" + harmless(text.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def to_serve(queue: str) -> str:
    """The command that starts a worker for this queue: for all of them, if its name can't be given there."""
    can_be_given = is_harmless(queue) and "," not in queue and queue == queue.strip()
    return "holdfast worker APP" + (f" -q {quoted(queue)}" if can_be_given else ", which serves every queue")


def named(text: str) -> str:
    """A name behind a command: one word, and no option, whatever it begins with."""
    return ("-- " if text.startswith("-") else "") + quoted(text)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names most like this one."""
    from difflib import get_close_matches

    return get_close_matches(name, sorted(known), n=3)
