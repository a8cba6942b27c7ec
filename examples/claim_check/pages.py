"""Fetches a page that a stranger named, and gives back its text."""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser

from examples.safe_http import Fetcher, Refused, Reply, web_address

LONGEST_FETCH = 20.0  # seconds, with look-ups and redirects
LARGEST_PAGE = 2_000_000  # bytes
REDIRECTS = 3
KINDS = ("text/html", "application/xhtml+xml", "text/plain")
HIDDEN = ["script", "style", "noscript", "template", "svg", "iframe", "object", "head"]
AGENT = "claim-check (an example application)"
ACCEPT = "text/html, application/xhtml+xml, text/plain;q=0.8"


class PageRefused(Exception):
    """The page can't be judged. `permanent`: nor can it later."""

    def __init__(self, code: str, reason: str, permanent: bool = True) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.permanent = permanent


def page_text(url: str, allow_private: bool = False, longest: float = LONGEST_FETCH) -> str:
    """The text of this page, or PageRefused. `allow_private` is for tests, whose pages are on this machine."""
    try:
        with Fetcher(AGENT, allow_private=allow_private, longest=longest, largest=LARGEST_PAGE) as fetcher:
            return _readable(fetcher.follow(web_address(url), REDIRECTS, Accept=ACCEPT)[-1])
    except Refused as refused:
        raise PageRefused(f"PAGE_{refused.code}", refused.reason, refused.permanent) from None


def _readable(reply: Reply) -> str:
    url, status = reply.url, reply.status
    if status != 200:
        reason = f"{url.host:.200} answers {status}"
        raise PageRefused("PAGE_STATUS", reason, permanent=status < 500 and status not in (408, 425, 429))
    if reply.kind not in KINDS:
        raise PageRefused("PAGE_KIND", f"the page is {reply.kind[:60] or 'of no stated type'}, not HTML or plain text")
    text = reply.text if reply.kind == "text/plain" else _visible(reply.text)
    lines = (" ".join(line.split()) for line in text.replace("\0", "").splitlines())
    text = "\n".join(line for line in lines if line)
    if not text:
        raise PageRefused("PAGE_EMPTY", f"the page of {url.host:.200} has no text without running its scripts")
    return text


def _visible(html: str) -> str:
    """Title, description and text of a page."""
    tree = LexborHTMLParser(html)
    title = tree.css_first("title")
    description = tree.css_first('meta[name="description"]')
    head = [
        title.text() if title else "",
        (description.attributes.get("content") or "") if description else "",
    ]
    tree.strip_tags(HIDDEN)
    body = tree.body.text(separator="\n", strip=True) if tree.body else ""
    return "\n".join([*head, body])
