"""What may be a name or a text that we print: of a queue, task, key, worker, operator or reason."""

from __future__ import annotations

import re

from holdfast.errors import BadArguments
from holdfast.harmless import UNSAFE, harmless, written


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
