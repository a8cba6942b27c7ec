"""Reads the model's reports. Their format is BUNKD_V1:

    report    = "BUNKD_V1" NL section+            ; any order, each header once
    section   = summary | evidence | claims | flags | subscores | citations
    summary   = "SUMMARY:" text NL (text NL)*     ; required; continues to the next header
    evidence  = "EVIDENCE_BULLETS:" NL list       ; required, 1 or more items, not NONE
    subscores = "SUBSCORES:" NL 4(name ":" SP number NL)   ; required; HE, AT, MO, PV once each, any order
    claims    = "KEY_CLAIMS:" NL (list of  claim " | " level " | " why)
    flags     = "RED_FLAGS:" NL list
    citations = "CITATIONS:" NL (list of  url [" | " title [" | " snippet]])
    list      = ("NONE" NL) | (bullet text NL (SP SP text NL)*)+
    bullet    = "- " | "* " | "• " | 1*DIGIT ". "
    level     = "supported" | "mixed" | "weak" | "unsupported"   ; case-insensitive
    number    = 1*2DIGIT ["." ("0" | "5")] ["/10"]               ; 0.0 to 10.0

`text` is any line that is no header. Forgiven: a byte order mark, CRLF, blank lines, trailing space, one code fence
around the whole, `**` or `#` around headers, `\\|` for a bar inside a text, and unknown sections (a line of only four
or more capitals or underscores and a colon). Everything else is refused: a report is read whole or not at all. So is a
line that was meant as a header, such as `**RED_FLAGS:` or `RED_FLAGS: NONE`: read as text, it would hide a section."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from examples.claim_check.urls import is_web_address

MAGIC = "BUNKD_V1"
SUMMARY, EVIDENCE, SUBSCORES = "SUMMARY", "EVIDENCE_BULLETS", "SUBSCORES"
CLAIMS, FLAGS, CITATIONS = "KEY_CLAIMS", "RED_FLAGS", "CITATIONS"
REQUIRED = (SUMMARY, EVIDENCE, SUBSCORES)
KNOWN = (*REQUIRED, CLAIMS, FLAGS, CITATIONS)
LEVELS = ("supported", "mixed", "weak", "unsupported")
NONE = "NONE"

FENCE = re.compile(r"(?P<marks>`{3,}|~{3,})[^`]*")
TITLE = re.compile(rf"(?:#+ *)?(?P<bold>\*\*)?{MAGIC}(?(bold)\*\*)(?: *#+)?")
HEADER = re.compile(
    r"(?P<hashes>#+ *)?(?P<bold>\*\*)?(?P<name>[A-Z_]{4,})(?:(?(bold)\*\*:|:)|(?(bold):\*\*|:))(?P<text>.*)"
)
MEANT_AS_HEADER = re.compile(rf"(?!\* ) ?(?:[#*][#* ]*)?(?P<name>{'|'.join(KNOWN)})[#* ]*:")
BULLET = re.compile(r"(?:[-*•]|[0-9]+\.) (?P<text>.+)")
SUBSCORE = re.compile(r"(?P<name>HE|AT|MO|PV): (?P<number>.+)")
NUMBER = re.compile(r"(?P<whole>[0-9]{1,2})(?:\.(?P<half>[05]))?(?:/10)?")
ANY_NUMBER = re.compile(r"(?P<value>-?[0-9]{1,9}(?:\.[0-9]{1,9})?)(?:/10)?")


class ReportRefused(ValueError):
    """The text is no report: the line (from 1) and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class Subscores(NamedTuple):
    """Each from 0 to 10 in steps of 0.5."""

    HE: float
    AT: float
    MO: float
    PV: float


@dataclass(frozen=True)
class Claim:
    claim: str
    support_level: str
    why: str


@dataclass(frozen=True)
class Citation:
    url: str
    title: str = ""
    snippet: str = ""


@dataclass(frozen=True)
class Report:
    summary: str
    subscores: Subscores
    evidence_bullets: tuple[str, ...]
    red_flags: tuple[str, ...] = ()
    key_claims: tuple[Claim, ...] = ()
    citations: tuple[Citation, ...] = ()
    extra: dict[str, str] = field(default_factory=dict)  # unknown sections: header and text


def parse(text: str) -> Report:
    """The report in this text, or ReportRefused."""
    lines = _lines(text)
    sections = {section.name: section for section in _sections(lines)}
    for name in REQUIRED:
        if name not in sections:
            raise ReportRefused(lines[-1].number, f"the report ends without {name}:")
    extra = {name: section.text() for name, section in sections.items() if name not in KNOWN}
    return Report(
        summary=_summary(sections[SUMMARY]),
        subscores=_subscores(sections[SUBSCORES]),
        evidence_bullets=tuple(_literal(item.text) for item in _items(sections[EVIDENCE])),
        red_flags=tuple(_literal(item.text) for item in _items(sections.get(FLAGS))),
        key_claims=tuple(_claim(item) for item in _items(sections.get(CLAIMS))),
        citations=tuple(_citation(item) for item in _items(sections.get(CITATIONS))),
        extra=extra,
    )


class _Line(NamedTuple):
    number: int
    text: str


class _Section(NamedTuple):
    name: str
    number: int  # of its header
    lines: list[_Line]

    def text(self) -> str:
        return "\n".join(line.text.strip() for line in self.lines)


def _lines(text: str) -> list[_Line]:
    """The lines that count: without blank ones, trailing space, byte order mark and a fence around the whole."""
    numbered = enumerate(text.removeprefix("\ufeff").split("\n"), start=1)
    lines = [_Line(number, line.rstrip()) for number, line in numbered if line.strip()]
    if len(lines) > 1 and (fence := FENCE.fullmatch(lines[0].text)) and lines[-1].text == fence["marks"]:
        lines = lines[1:-1]
    return lines


def _sections(lines: list[_Line]) -> list[_Section]:
    if not lines:
        raise ReportRefused(1, "the reply is empty")
    magic, *others = lines
    if not TITLE.fullmatch(magic.text):
        raise ReportRefused(magic.number, f"the report must begin with {MAGIC} on a line of its own")
    sections: dict[str, _Section] = {}
    section: _Section | None = None
    for line in others:
        if header := _header(line):
            name, rest = header
            if name in sections and name in KNOWN:
                raise ReportRefused(line.number, f"{name}: appears a second time")
            section = sections.setdefault(name, _Section(name, line.number, []))
            if rest:
                section.lines.append(_Line(line.number, rest))
        elif section is None:
            raise ReportRefused(line.number, f"{MAGIC} must be followed by a header, such as {SUMMARY}:")
        else:
            section.lines.append(line)
    return list(sections.values())


def _header(line: _Line) -> tuple[str, str] | None:
    """The name in this header and the text after it. None: the line is text."""
    found = HEADER.fullmatch(line.text)
    if found:
        name, rest = found["name"], found["text"].strip()
        if found["hashes"] and not rest.strip("#"):
            rest = ""  # `## NAME ##`
        if name == SUMMARY or not rest:
            return name, rest
        if name in KNOWN:
            raise ReportRefused(line.number, f"{name}: must be alone on its line, with its content below it")
    elif meant := MEANT_AS_HEADER.match(line.text):
        raise ReportRefused(line.number, f"a header must be written {meant['name']}: and begin its line")
    return None


def _summary(section: _Section) -> str:
    if not section.lines:
        raise ReportRefused(section.number, f"{SUMMARY}: is empty")
    return _literal(" ".join(line.text.strip() for line in section.lines))


def _subscores(section: _Section) -> Subscores:
    found: dict[str, float] = {}
    for line in section.lines:
        subscore = SUBSCORE.fullmatch(line.text)
        if not subscore:
            raise ReportRefused(
                line.number, f"a subscore is HE, AT, MO or PV, a colon, a space and a number: {line.text:.40}"
            )
        name = subscore["name"]
        if name in found:
            raise ReportRefused(line.number, f"{name} appears a second time")
        found[name] = _number(line.number, name, subscore["number"])
    for name in Subscores._fields:
        if name not in found:
            raise ReportRefused(section.number, f"{SUBSCORES}: has no {name}")
    return Subscores(**found)


def _number(line: int, name: str, text: str) -> float:
    if number := NUMBER.fullmatch(text):
        value = int(number["whole"]) + (0.5 if number["half"] == "5" else 0.0)
        if value <= 10:
            return value
    elif not (number := ANY_NUMBER.fullmatch(text)):
        raise ReportRefused(line, f"{name} is not a number such as 7 or 7.5: {text:.40}")
    elif 0 <= float(number["value"]) <= 10:
        raise ReportRefused(line, f"{name} is not in steps of 0.5, written 7 or 7.5: {text:.40}")
    raise ReportRefused(line, f"{name} is not between 0 and 10: {text:.40}")


def _items(section: _Section | None) -> list[_Line]:
    """The items of a list, each in one line."""
    if section is None:
        return []
    if not section.lines:
        raise ReportRefused(section.number, f"{section.name}: has no items and no {NONE}")
    first, *others = section.lines
    if first.text == NONE:
        if section.name in REQUIRED:
            raise ReportRefused(first.number, f"{section.name}: needs at least one item")
        if others:
            raise ReportRefused(others[0].number, f"{section.name}: is {NONE}, so nothing may follow")
        return []
    items: list[_Line] = []
    for line in section.lines:
        if bullet := BULLET.fullmatch(line.text):
            items.append(_Line(line.number, bullet["text"].strip()))
        elif items and line.text.startswith("  "):
            items[-1] = _Line(items[-1].number, f"{items[-1].text} {line.text.strip()}")
        else:
            raise ReportRefused(
                line.number, f"an item must begin with '- ', and its further lines with two spaces: {line.text:.40}"
            )
    return items


def _claim(item: _Line) -> Claim:
    fields = _fields(item, 3, 3, "claim | level | why")
    level = fields[1].lower()
    if level not in LEVELS:
        raise ReportRefused(
            item.number, f"the level of a claim is {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {fields[1]:.40}"
        )
    return Claim(fields[0], level, fields[2])


def _citation(item: _Line) -> Citation:
    fields = _fields(item, 1, 3, "url | title | snippet")
    if not is_web_address(fields[0]):
        raise ReportRefused(item.number, f"a citation begins with an http or https address, not {fields[0]:.40}")
    return Citation(*fields)


def _fields(item: _Line, least: int, most: int, form: str) -> list[str]:
    fields = [_literal(text.strip()) for text in item.text.split(" | ")]
    if not least <= len(fields) <= most:
        raise ReportRefused(item.number, f"an item here is {form}, with \\| for a bar inside a text: {item.text:.40}")
    if not all(fields):
        raise ReportRefused(item.number, f"an item here is {form}, and none of them is empty")
    return fields


def _literal(text: str) -> str:
    return text.replace(r"\|", "|")
