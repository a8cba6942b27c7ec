"""The same tree, walked offline: which pages can be reached, by the links in their files. It shares no code with the
crawler: the standard library reads the pages."""

from __future__ import annotations

import hashlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

SITE = "http://tree.example"


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        name = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}.get(tag)
        if name is not None and given.get(name) is not None:
            self.found.append(given[name] or "")


def reachable(folder: Path, start: str) -> dict[str, str]:
    """Path → digest of the file, of all pages that links lead to from `start`."""
    found: dict[str, str] = {}
    waiting = [start]
    while waiting:
        path = waiting.pop()
        file = folder / unquote(path).lstrip("/")
        if path in found or file.suffix != ".html" or not file.is_file():
            continue
        body = file.read_bytes()
        found[path] = hashlib.sha256(body).hexdigest()
        parser = _Links()
        parser.feed(body.decode("utf-8", "replace"))
        for link in parser.found:
            target = urlsplit(urldefrag(urljoin(SITE + path, link.strip())).url)
            if f"{target.scheme}://{target.netloc}" == SITE and not target.query:
                waiting.append(target.path or "/")
    return found
