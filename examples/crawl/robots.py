"""What a site asks of crawlers: RFC 9309, read as leniently as large search engines read it.

Files in the wild have byte order marks, misspelt words, no colons, rules before any user agent, other encodings, and
megabytes. What can't be read is passed over, never the whole file."""

from __future__ import annotations

import codecs
import math
import re
from dataclasses import dataclass, field
from urllib.parse import quote

from examples.crawl.urls import UNRESERVED

LARGEST = 512_000  # bytes that are read: the least that RFC 9309 asks for, and a little more
LONGEST_LINE = 16_664  # characters
LONGEST_DELAY = 24 * 3600.0  # seconds
WORDS = {  # what a line's name begins with
    "user-agent": "agent", "useragent": "agent", "user agent": "agent",
    "disallow": "disallow", "dissallow": "disallow", "dissalow": "disallow", "disalow": "disallow",
    "diaslow": "disallow", "diasllow": "disallow", "disallaw": "disallow",
    "allow": "allow", "crawl-delay": "delay", "crawldelay": "delay", "crawl delay": "delay",
    "sitemap": "sitemap", "site-map": "sitemap",
}  # fmt: skip
ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")


@dataclass(frozen=True)
class Rule:
    allow: bool
    parts: list[str]  # between the stars, in one spelling
    whole: bool  # `$`: the path ends where the pattern ends
    length: int

    @classmethod
    def of(cls, allow: bool, pattern: str) -> Rule:
        """`*` is any number of characters; `$` at the end is the end. Elsewhere a dollar is a character."""
        whole = pattern.endswith("$")
        parts = [spelled(part) for part in pattern.removesuffix("$").split("*")]
        return cls(allow, parts, whole, sum(map(len, parts)) + len(parts) - 1 + whole)

    def matches(self, path: str) -> bool:
        """In time that grows with the path, not with the number of ways in which stars may match."""
        first, *rest = self.parts
        if not path.startswith(first):
            return False
        at = len(first)
        if not rest:
            return not self.whole or at == len(path)
        for part in rest[:-1]:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        last = rest[-1]
        if self.whole:
            return len(path) - len(last) >= at and path.endswith(last)
        return path.find(last, at) >= 0


@dataclass
class Group:
    rules: list[Rule] = field(default_factory=list)
    delay: float | None = None


@dataclass
class Robots:
    """The rules for one crawler."""

    rules: list[Rule] = field(default_factory=list)
    delay: float = 0.0  # seconds between two requests
    sitemaps: list[str] = field(default_factory=list)

    def allows(self, target: str) -> bool:
        """`target`: path and query. The longest pattern that matches decides; of equal ones that which allows."""
        path = spelled(target)
        if path == "/robots.txt":
            return True
        matching = [(rule.length, rule.allow) for rule in self.rules if rule.matches(path)]
        return not matching or max(matching)[1]


def parse(body: bytes, agent: str) -> Robots:
    """The rules of this file for this crawler. `agent`: its product token, such as `holdfast-crawl`."""
    own, everyone, found = Group(), Group(), Robots()
    own_seen = False
    naming: list[Group] = []  # the groups that the lines just read name
    in_rules = False
    for word, value in _lines(body):
        match word:
            case "agent":
                if in_rules:
                    naming, in_rules = [], False
                if value.split()[:1] == ["*"]:
                    naming.append(everyone)
                elif _token(value) == agent.lower():
                    naming.append(own)
                    own_seen = True
            case "allow" | "disallow":
                in_rules = True
                if value:
                    rule = Rule.of(word == "allow", value)
                    for group in naming:
                        group.rules.append(rule)
            case "delay":  # is no rule of RFC 9309, and does not end the names of a group
                seconds = _seconds(value)
                for group in naming:
                    group.delay = seconds if group.delay is None else max(group.delay, seconds)
            case "sitemap":
                found.sitemaps.append(value)
    group = own if own_seen else everyone
    found.rules, found.delay = group.rules, group.delay or 0.0
    return found


def spelled(target: str) -> str:
    """One spelling of a path, or of a part of a pattern: characters that need no escape have none, all others have one.
    So `/caf%c3%a9` and `/café` are the same, and `/%61` is `/a`; but an escaped slash is not a plain one. A star and a
    dollar are escaped, as patterns have to escape them where they mean the characters."""

    def plain(match: re.Match[str]) -> str:
        byte = int(match[1], 16)
        return chr(byte) if byte in UNRESERVED else match[0].upper()

    whole = ESCAPE.sub(plain, target)
    return quote(whole, safe="/%~!&'()+,;=:@?[]#|^`{}\"<>\\-._", encoding="utf-8", errors="surrogateescape")


def _lines(body: bytes) -> list[tuple[str, str]]:
    found = []
    for line in re.split("\r\n|\r|\n", _text(body)):
        line = line[:LONGEST_LINE].partition("#")[0].strip(" \t\0\v\f")
        name, colon, value = line.partition(":")
        if not colon:  # `Disallow /private` is common enough
            name, value = line.split() if len(line.split()) == 2 else ("", "")
        name = " ".join(name.lower().split())
        found += [(word, value.strip()) for start, word in WORDS.items() if name.startswith(start)]
    return found


def _text(body: bytes) -> str:
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body[:LARGEST].decode("utf-16", "replace")
    return body[:LARGEST].lstrip(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _token(value: str) -> str:
    """`Googlebot/2.1 (+http://…)` names `googlebot`."""
    match = re.match("[a-zA-Z_-]+", value)
    return match[0].lower() if match else ""


def _seconds(value: str) -> float:
    try:
        seconds = float(value.split()[0].replace(",", ".").removesuffix("s"))
    except (ValueError, IndexError):
        return 0.0
    return min(seconds, LONGEST_DELAY) if math.isfinite(seconds) and seconds > 0 else 0.0
