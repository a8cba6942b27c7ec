"""Words and names as people and shells read them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.harmless import harmless, is_harmless


def plural(word: str, n: int) -> str:
    return word if n == 1 else word + "s"


def quoted(text: str) -> str:
    """Quoted for a shell, as one word. Characters that may not be shown are escaped in the way of bash and zsh."""
    import shlex

    if is_harmless(text):
        return shlex.quote(text)
    return "$'" + harmless(text.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def to_serve(queue: str) -> str:
    """The command that starts a worker for this queue, or for all queues if its name can't be passed as an option."""
    can_be_given = is_harmless(queue) and "," not in queue and queue == queue.strip()
    return "holdfast worker APP" + (f" -q {quoted(queue)}" if can_be_given else ", which serves every queue")


def named(text: str) -> str:
    """A name as an argument of a command: one word that is not taken for an option."""
    return ("-- " if text.startswith("-") else "") + quoted(text)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names most like this one."""
    from difflib import get_close_matches

    return get_close_matches(name, sorted(known), n=3)
