from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.claim_check.urls import canonical, is_web_address

SAME = [
    ("https://example.org", "https://example.org/"),
    ("HTTPS://EXAMPLE.org/", "https://example.org/"),
    ("https://example.org./", "https://example.org/"),
    ("https://example.org:443/a", "https://example.org/a"),
    ("http://example.org:80/a", "http://example.org/a"),
    ("https://example.org/a#part", "https://example.org/a"),
    ("https://example.org/a/../b/./c", "https://example.org/b/c"),
    ("https://example.org/../../a", "https://example.org/a"),
    ("https://example.org/%7euser", "https://example.org/~user"),
    ("https://example.org/ä", "https://example.org/%C3%A4"),
    ("https://example.org/?b=2&a=1", "https://example.org/?a=1&b=2"),
    ("https://example.org/a?utm_source=x&id=7&gclid=y", "https://example.org/a?id=7"),
    ("https://example.org/a?utm_source=x", "https://example.org/a"),
    ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ("http://[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
]
OTHER = [
    ("https://example.org/", "http://example.org/"),
    ("https://example.org/a", "https://example.org/A"),
    ("https://example.org/a", "https://example.org/a/"),
    ("https://example.org:8443/", "https://example.org/"),
    ("https://example.org/?a=1&a=2", "https://example.org/?a=1"),
    ("https://example.org/?a=", "https://example.org/"),
    ("https://example.org/a%2Fb", "https://example.org/a/b"),
    ("https://example.org/a%3Fb", "https://example.org/a?b"),
    ("https://www.example.org/", "https://example.org/"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_address(one: str, other: str) -> None:
    assert canonical(one) == canonical(other) == other


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_different_addresses(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


NONE = [
    "",
    "example.org",
    "ftp://example.org",
    "javascript:alert(1)",
    "https://",
    "https:///a",
    "https://a b",
    " http://a",
]
BROKEN = [
    "http://[::1",
    "http://a:b/",
    "http://a:99999/",
    "http://a:0/",
    "http://a/\n",
    "http://a/\x00",
    "http://a\u2028/",
]


@pytest.mark.parametrize("text", NONE + BROKEN)
def test_no_web_address(text: str) -> None:
    assert not is_web_address(text)


@given(
    st.text("abAB.:/?#[]@%2eE&=;+\\~ä-_|'\"<>", max_size=30).map("http://h".__add__) | st.text().map("https://".__add__)
)
def test_the_canonical_spelling_of_any_web_address_is_its_own(url: str) -> None:
    if is_web_address(url):
        once = canonical(url)
        assert is_web_address(once)
        assert canonical(once) == once
