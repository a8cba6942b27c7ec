"""Did it get better? An audit beside the one before of the same site."""

from __future__ import annotations

from typing import Any


def compared(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The findings that are new, and those that are gone. A finding is the same one if its check and its element are:
    its text may name a time or a number."""
    old, new = {_key(one) for one in before}, {_key(one) for one in now}
    return {
        "new": [one for one in now if _key(one) not in old],
        "fixed": [one for one in before if _key(one) not in new],
    }


def _key(finding: dict[str, Any]) -> tuple[str, str]:
    return finding["check"], finding["element"] or finding["severity"]
