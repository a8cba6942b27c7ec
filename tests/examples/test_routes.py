"""What the applications' web servers have in common."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.http.asking import Ask


@pytest.mark.parametrize("example", ["claim_check", "crawl", "site_audit"])
def test_no_other_site_can_show_the_page_in_a_frame(example: str) -> None:
    """There its visitors could be led to press its buttons. Our tests do show it in one, of the same site."""
    answer = Ask(import_module(f"examples.{example}.web").web).get("/")
    assert "frame-ancestors 'self'" in answer.headers["Content-Security-Policy"]
