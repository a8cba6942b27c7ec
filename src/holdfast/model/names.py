"""What a name may be: of a queue, a task, a key, a worker, whoever asks for something, and why."""

from __future__ import annotations

import re

from holdfast.errors import BadArguments
from holdfast.harmless import UNSAFE, harmless, written


class BadName(BadArguments):
    """This can't be a name: it has a character that is none to read."""

    number = "HF1204"


def checked_name(what: str, name: str) -> str:
    """The name, unless it holds something that a terminal or a log would obey."""
    found = re.search(UNSAFE, name)
    if found is not None:
        raise BadName(
            f"{what} has the control character {written(found[0])} in it: '{harmless(name)[:80]}'. Names are made of "
            "characters to read. What plain SQL wrote under such a name is reached by its jobs' ids, or by a filter"
        )
    return name
