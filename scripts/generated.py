"""Parts of pages that are generated: what stands between two comments that name them."""

from __future__ import annotations

import re


def fill_in(page: str, name: str, text: str) -> str:
    """The page with this text in its place."""
    between = re.compile(f"(<!-- {name}: begin[^\n]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    if not between.search(page):
        raise ValueError(f"the page has no place for {name}")
    return between.sub(lambda found: found[1] + text + "\n" + found[2], page)
