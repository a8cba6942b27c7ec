"""BUNKD_V1: what is read, what is forgiven, and what is refused, with line and reason."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples.claim_check import rubric
from examples.claim_check.report import Citation, Claim, Report, ReportRefused, Subscores, parse
from examples.claim_check.urls import is_web_address

WHOLE = """BUNKD_V1
SUMMARY: It does nothing.
It costs a lot.
EVIDENCE_BULLETS:
- No study
- A test says
  it does nothing
SUBSCORES:
HE: 8.5
AT: 7
MO: 10.0/10
PV: 0
KEY_CLAIMS:
- Works overnight | unsupported | nobody measured it
RED_FLAGS:
- A countdown
CITATIONS:
- https://example.org/test | A test | It did nothing
- https://example.net
"""
READ = Report(
    summary="It does nothing. It costs a lot.",
    subscores=Subscores(HE=8.5, AT=7.0, MO=10.0, PV=0.0),
    evidence_bullets=("No study", "A test says it does nothing"),
    red_flags=("A countdown",),
    key_claims=(Claim("Works overnight", "unsupported", "nobody measured it"),),
    citations=(Citation("https://example.org/test", "A test", "It did nothing"), Citation("https://example.net")),
)
EXAMPLES = int(os.environ.get("HOLDFAST_REPORTS", "400"))  # `make fuzz` tries many more
SMALL = "BUNKD_V1\nSUMMARY: s\nEVIDENCE_BULLETS:\n- e\nSUBSCORES:\nHE: 1\nAT: 2\nMO: 3\nPV: 4\n"  # 9 lines


def changed(before: str, after: str, text: str = WHOLE) -> str:
    assert before in text
    return text.replace(before, after, 1)


def small_with(section: str) -> Report:
    return parse(SMALL + section)


def test_a_whole_report() -> None:
    assert parse(WHOLE) == READ


def test_the_least_report() -> None:
    assert parse(SMALL) == Report(summary="s", subscores=Subscores(1, 2, 3, 4), evidence_bullets=("e",))


def test_the_example_that_the_model_is_shown_is_a_report() -> None:
    begin = rubric.TEXT.index("\nBUNKD_V1\n")
    shown = parse(rubric.TEXT[begin : rubric.TEXT.index("\n\n", begin)])
    assert shown.key_claims
    assert shown.red_flags
    assert shown.citations


def test_sections_come_in_any_order() -> None:
    sections = re.split(r"\n(?=[A-Z_]{5,}:)", WHOLE.rstrip("\n"))
    assert parse("\n".join([sections[0], *reversed(sections[1:])])) == READ


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + WHOLE,
        WHOLE.replace("\n", "\r\n"),
        "\ufeff" + WHOLE.replace("\n", "\r\n"),
        WHOLE.replace("\n", "\n\n"),
        "\n \n" + WHOLE + "\n\t\n",
        WHOLE.replace("\n", "  \n"),
        WHOLE.replace("\n", "\t\u00a0\n"),
        WHOLE.rstrip("\n"),
        f"```\n{WHOLE}```\n",
        f"```text\n{WHOLE}```",
        f"``` plain text\n{WHOLE}```",
        f"\ufeff\n~~~~\n\n{WHOLE}\n~~~~\n\n",
        re.sub(r"(?m)^([A-Z_]{5,}):", r"**\1:**", WHOLE),
        re.sub(r"(?m)^([A-Z_]{5,}):", r"**\1**:", WHOLE),
        re.sub(r"(?m)^([A-Z_]{5,}):", r"## \1:", WHOLE),
        re.sub(r"(?m)^([A-Z_]{5,}):", r"#\1:", WHOLE),
        re.sub(r"(?m)^([A-Z_]{5,}):", r"### **\1:**", WHOLE),
        re.sub(r"(?m)^(EVIDENCE_BULLETS|SUBSCORES|RED_FLAGS):", r"## \1: ##", WHOLE),
        changed("BUNKD_V1", "# BUNKD_V1"),
        changed("BUNKD_V1", "**BUNKD_V1**"),
        changed("SUMMARY: It", "SUMMARY:\nIt"),
        changed("SUMMARY: It", "SUMMARY:It"),
        re.sub(r"(?m)^- ", "* ", WHOLE),
        re.sub(r"(?m)^- ", "• ", WHOLE),
        re.sub(r"(?m)^- ", "12. ", WHOLE),
        changed("| unsupported |", "| UnSupported |"),
        changed("HE: 8.5\nAT: 7\n", "AT: 7.0/10\nHE: 08.5\n"),
        changed(" | nobody measured it", " | nobody\n  measured it"),
    ],
)
def test_what_is_forgiven_reads_the_same(text: str) -> None:
    assert parse(text) == READ


def test_a_bar_inside_a_text_is_escaped() -> None:
    assert parse(changed("SUMMARY: s", "SUMMARY: s \\| t\n\\| u", SMALL)).summary == "s | t | u"
    read = small_with(
        "KEY_CLAIMS:\n- a \\| b|c | mixed | d\\|e\nCITATIONS:\n- https://a.example/x | T \\| U\nRED_FLAGS:\n- f \\| g\n"
    )
    assert read.key_claims == (Claim("a | b|c", "mixed", "d|e"),)
    assert read.citations == (Citation("https://a.example/x", "T | U"),)
    assert read.red_flags == ("f | g",)


def test_unknown_sections_are_kept_under_extra_and_end_the_one_before() -> None:
    text = changed("EVIDENCE_BULLETS:", "PRICE_HISTORY:\n- 20 in May\nIt rose.\n**____:**\nEVIDENCE_BULLETS:")
    read = parse(text + "PRICE_HISTORY:\nand fell")
    assert read.extra == {"PRICE_HISTORY": "- 20 in May\nIt rose.\nand fell", "____": ""}
    assert (read.summary, read.evidence_bullets) == (READ.summary, READ.evidence_bullets)


@pytest.mark.parametrize(
    "line", ["NOTE: it is cheap", "ABC:", "Notes:", "NOTES", "A1BC:", "HE: 7", "- NOTES:", "NO TES:"]
)
def test_a_line_that_is_no_header_is_text(line: str) -> None:
    assert parse(changed("It costs a lot.", line)).summary == f"It does nothing. {line}"


@pytest.mark.parametrize("section", ["KEY_CLAIMS", "RED_FLAGS", "CITATIONS"])
def test_none_is_an_empty_list(section: str) -> None:
    assert small_with(f"{section}:\nNONE\n") == parse(SMALL)


def test_a_claim_has_one_of_four_levels() -> None:
    claims = "".join(f"- c | {level} | w\n" for level in ("supported", "Mixed", "WEAK", "unsupported"))
    read = small_with("KEY_CLAIMS:\n" + claims)
    assert [claim.support_level for claim in read.key_claims] == ["supported", "mixed", "weak", "unsupported"]


REFUSED = [
    # Before the first section
    ("", 1, "empty"),
    ("\n \n", 1, "empty"),
    ("```\n```", 1, "empty"),
    ("Sure!\n" + WHOLE, 1, "begin with BUNKD_V1"),
    ("\n\nSure!\n" + WHOLE, 3, "begin with BUNKD_V1"),
    ("BUNKD_V2" + WHOLE[8:], 1, "begin with BUNKD_V1"),
    ("bunkd_v1" + WHOLE[8:], 1, "begin with BUNKD_V1"),
    ("BUNKD_V1:" + WHOLE[8:], 1, "begin with BUNKD_V1"),
    (" " + WHOLE, 1, "begin with BUNKD_V1"),
    ("\ufeff\ufeff" + WHOLE, 1, "begin with BUNKD_V1"),
    (WHOLE[9:], 1, "begin with BUNKD_V1"),
    ("```\n" + WHOLE, 1, "begin with BUNKD_V1"),
    (f"```\n```\n{WHOLE}```\n```", 2, "begin with BUNKD_V1"),
    (f"```\n{WHOLE}```\nI hope this helps", 1, "begin with BUNKD_V1"),
    (changed("SUMMARY", "Here it is.\nSUMMARY"), 2, "BUNKD_V1 must be followed by a header"),
    # Headers
    (changed("SUMMARY: s\n", "", SMALL), 8, "ends without SUMMARY:"),
    (changed("EVIDENCE_BULLETS:\n- e\n", "", SMALL), 7, "ends without EVIDENCE_BULLETS:"),
    (SMALL[: SMALL.index("SUBSCORES")], 4, "ends without SUBSCORES:"),
    ("BUNKD_V1\n", 1, "ends without SUMMARY:"),
    (changed("SUMMARY:", "Summary:", SMALL), 2, "BUNKD_V1 must be followed by a header"),
    (SMALL + "SUMMARY: again\n", 10, "SUMMARY: appears a second time"),
    (SMALL + "EVIDENCE_BULLETS:\n- f\n", 10, "EVIDENCE_BULLETS: appears a second time"),
    (SMALL + "SUBSCORES:\n", 10, "SUBSCORES: appears a second time"),
    (SMALL + "RED_FLAGS:\nNONE\n\n**RED_FLAGS**:\nNONE\n", 13, "RED_FLAGS: appears a second time"),
    (changed("EVIDENCE_BULLETS:\n- e", "EVIDENCE_BULLETS: e", SMALL), 3, "EVIDENCE_BULLETS: must be alone"),
    (SMALL + "RED_FLAGS: NONE\n", 10, "RED_FLAGS: must be alone"),
    (changed("It costs a lot.", "KEY_CLAIMS: see below"), 3, "KEY_CLAIMS: must be alone"),
    (changed("It costs a lot.", "**RED_FLAGS: none**"), 3, "a header must be written RED_FLAGS:"),
    (changed("It costs a lot.", " RED_FLAGS:"), 3, "a header must be written RED_FLAGS:"),
    (changed("It costs a lot.", "**RED_FLAGS:"), 3, "a header must be written RED_FLAGS:"),
    # Summary
    (changed("SUMMARY: s", "SUMMARY:", SMALL), 2, "SUMMARY: is empty"),
    (changed("SUMMARY: s", "## SUMMARY: ##\n \n", SMALL), 2, "SUMMARY: is empty"),
    # Lists
    (changed("- e\n", "", SMALL), 3, "EVIDENCE_BULLETS: has no items"),
    (changed("- e\n", "NONE\n", SMALL), 4, "at least one item"),
    (changed("- e\n", "-\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "- \n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "-e\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "\u2013 e\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "1) e\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "\u0661. e\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "e\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "  e\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", " - e\n", SMALL), 4, "an item must begin with"),
    (changed("- e\n", "- e\n f\n", SMALL), 5, "an item must begin with"),
    (changed("- e\n", "- e\n\tf\n", SMALL), 5, "an item must begin with"),
    (SMALL + "RED_FLAGS:\n", 10, "RED_FLAGS: has no items"),
    (SMALL + "RED_FLAGS:\nnone\n", 11, "an item must begin with"),
    (SMALL + "RED_FLAGS:\nNONE\n- f\n", 12, "nothing may follow"),
    (SMALL + "RED_FLAGS:\n- f\nNONE\n", 12, "an item must begin with"),
    # Subscores
    (changed("PV: 4\n", "", SMALL), 5, "has no PV"),
    (changed("PV: 4\n", "HE: 4\n", SMALL), 9, "HE appears a second time"),
    (changed("PV: 4", "PV: 10.5", SMALL), 9, "PV is not between 0 and 10"),
    (changed("PV: 4", "PV: 11/10", SMALL), 9, "PV is not between 0 and 10"),
    (changed("PV: 4", "PV: 100", SMALL), 9, "PV is not between 0 and 10"),
    (changed("PV: 4", "PV: -1", SMALL), 9, "PV is not between 0 and 10"),
    (changed("PV: 4", "PV: 7.3", SMALL), 9, "PV is not in steps of 0.5"),
    (changed("PV: 4", "PV: 7.50", SMALL), 9, "PV is not in steps of 0.5"),
    (changed("PV: 4", "PV: 007", SMALL), 9, "PV is not in steps of 0.5"),
    (changed("PV: 4", "PV: 7,5", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV: .5", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV: 4.", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV: 4 /10", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV: 4/100", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV: four", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV: \u0664", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV:  4", SMALL), 9, "PV is not a number"),
    (changed("PV: 4", "PV:4", SMALL), 9, "a subscore is"),
    (changed("PV: 4", "PV:", SMALL), 9, "a subscore is"),
    (changed("PV: 4", "pv: 4", SMALL), 9, "a subscore is"),
    (changed("PV: 4", "- PV: 4", SMALL), 9, "a subscore is"),
    (changed("PV: 4", "**PV**: 4", SMALL), 9, "a subscore is"),
    (changed("PV: 4", "PV: 4\nQQ: 4", SMALL), 10, "a subscore is"),
    # Claims and citations
    (SMALL + "KEY_CLAIMS:\n- it works\n", 11, "claim | level | why"),
    (SMALL + "KEY_CLAIMS:\n- it works | mixed\n", 11, "claim | level | why"),
    (SMALL + "KEY_CLAIMS:\n- it works|mixed|why\n", 11, "claim | level | why"),
    (SMALL + "KEY_CLAIMS:\n- c | mixed | why | not\n", 11, "claim | level | why"),
    (SMALL + "KEY_CLAIMS:\n- c | mixed | \n", 11, "claim | level | why"),
    (SMALL + "KEY_CLAIMS:\n-  | mixed | why\n", 11, "claim | level | why"),
    (SMALL + "KEY_CLAIMS:\n- c | strong | why\n", 11, "level of a claim"),
    (SMALL + "KEY_CLAIMS:\n- c | weak | w\n- d |  | why\n", 12, "none of them is empty"),
    (SMALL + "CITATIONS:\n- A book\n", 11, "http or https address"),
    (SMALL + "CITATIONS:\n- example.org\n", 11, "http or https address"),
    (SMALL + "CITATIONS:\n- javascript:alert(1) | T\n", 11, "http or https address"),
    (SMALL + "CITATIONS:\n- https:// | T\n", 11, "http or https address"),
    (SMALL + "CITATIONS:\n- https://[::1 | T\n", 11, "http or https address"),
    (SMALL + "CITATIONS:\n- https://a.example/x y\n", 11, "http or https address"),
    (SMALL + "CITATIONS:\n- https://a.example | T | S | more\n", 11, "url | title | snippet"),
    (SMALL + "CITATIONS:\n- https://a.example |  | S\n", 11, "none of them is empty"),
]


@pytest.mark.parametrize(("text", "line", "reason"), REFUSED)
def test_what_is_refused_names_line_and_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(ReportRefused) as refused:
        parse(text)
    assert (refused.value.line, reason in refused.value.reason) == (line, True), refused.value
    assert str(refused.value) == f"line {line}: {refused.value.reason}"


# The grammar once more, written another way: what is forgiven is taken away, the rest is cut at its headers, and each
# section matches its rule. It has no lines and no reasons, only yes or no.

NAMES = ["SUMMARY", "EVIDENCE_BULLETS", "SUBSCORES", "KEY_CLAIMS", "RED_FLAGS", "CITATIONS"]
NAME = rf"(?:{'|'.join(NAMES)})"
HEADER = rf"(?:{NAME}:|[A-Z_]{{4,}}:$)"
BROKEN_HEADER = rf"(?!{NAME}:)(?!\* )[ ]?(?:[#*][#* ]*)?{NAME}[#* ]*:"
ITEM = re.compile(r"(?:[-*•]|[0-9]+\.) (?P<text>.*\S.*)")
NUMBER = r"(?:10(?:\.0)?|0?[0-9](?:\.[05])?)(?:/10)?"


def in_the_grammar(text: str) -> bool:
    text = plain(text)
    magic, *sections = re.split(rf"(?m)^(?={HEADER})", text)
    if magic != "BUNKD_V1\n" or re.search(rf"(?m)^{BROKEN_HEADER}", text):
        return False
    bodies = [section.split(":", 1) for section in sections]
    names = [name for name, _ in bodies if name in NAMES]
    required_once = set(names) >= set(NAMES[:3]) and len(names) == len(set(names))
    return required_once and all(RULES[name](body) for name, body in bodies if name in NAMES)


def plain(text: str) -> str:
    """The text without what readers forgive."""
    lines = [line.rstrip() for line in text.removeprefix("\ufeff").split("\n")]
    lines = [line for line in lines if line]
    if len(lines) > 1 and (fence := re.fullmatch(r"(```+|~~~+)[^`]*", lines[0])) and lines[-1] == fence[1]:
        lines = lines[1:-1]
    for n, line in enumerate(lines):
        bare = re.sub(r"^(#+ *)?\*\*([A-Z_]{4,})(\*\*:|:\*\*)", r"\1\2:", line)
        bare = re.sub(r"^#+ *([A-Z_]{4,}:)( *#+$)?", r"\1", bare)
        lines[n] = re.sub(r"^(?:#+ *)?(\*\*)?BUNKD_V1(?(1)\*\*)( *#+)?$", "BUNKD_V1", bare) if n == 0 else bare
    return "".join(f"{line}\n" for line in lines)


def is_summary(body: str) -> bool:
    return not body.isspace()


def is_subscores(body: str) -> bool:
    found = re.fullmatch(rf"\n(?:(?:HE|AT|MO|PV): {NUMBER}\n){{4}}", body)
    return found is not None and len(set(re.findall("HE|AT|MO|PV", body))) == 4


def is_list(body: str, is_item: Callable[[list[str]], bool] = lambda fields: True) -> bool:
    written = all(line.startswith("  ") or ITEM.fullmatch(line) for line in body.strip("\n").split("\n"))
    begin, *lines = re.sub(r"\n  +", " ", body).removesuffix("\n").split("\n")
    items = [ITEM.fullmatch(line) for line in lines]
    return written and not begin and all(item and is_item(item["text"].split(" | ")) for item in items)


def is_claim(fields: list[str]) -> bool:
    levels = {"supported", "mixed", "weak", "unsupported"}
    return len(fields) == 3 and all(field.strip() for field in fields) and fields[1].strip().lower() in levels


def is_citation(fields: list[str]) -> bool:
    url = fields[0].strip().replace("\\|", "|")
    return len(fields) <= 3 and all(field.strip() for field in fields) and is_web_address(url)


RULES: dict[str, Callable[[str], bool]] = {
    "SUMMARY": is_summary,
    "EVIDENCE_BULLETS": is_list,
    "SUBSCORES": is_subscores,
    "KEY_CLAIMS": lambda body: body == "\nNONE\n" or is_list(body, is_claim),
    "RED_FLAGS": lambda body: body == "\nNONE\n" or is_list(body),
    "CITATIONS": lambda body: body == "\nNONE\n" or is_list(body, is_citation),
}


def accepted(text: str) -> bool:
    try:
        parse(text)
    except ReportRefused as error:
        refused = error
    else:
        return True
    assert 1 <= refused.line <= text.count("\n") + 1, "a line of the text"
    assert refused.reason
    return False


@pytest.mark.parametrize("text", [WHOLE, SMALL, *(text for text, _, _ in REFUSED)])
def test_the_grammar_written_twice_agrees_about_the_examples(text: str) -> None:
    assert in_the_grammar(text) is accepted(text)


WORDS = st.text("abc |\\-:é\u00a0\r\t*0", min_size=1, max_size=12).map(str.strip).filter(bool)
SCORES = st.integers(0, 20).map(lambda halves: halves / 2)


def in_lines(draw: st.DrawFn, text: str) -> str:
    """The text of an item, maybe in several lines."""
    words = text.split(" ")
    return "".join(
        word if n == 0 else ("\n  " if word.strip() and draw(st.integers(0, 4)) == 0 else " ") + word
        for n, word in enumerate(words)
    )


@st.composite
def reports(draw: st.DrawFn) -> tuple[str, Report]:
    """A report as the grammar makes it, in one of its forgiven spellings, and what it says."""
    text = WORDS.map(lambda words: " ".join(words.split()).replace(" | ", " ").strip("| \\") or "x")
    wanted = Report(
        summary=draw(text),
        subscores=Subscores(*(draw(SCORES) for _ in range(4))),
        evidence_bullets=tuple(draw(st.lists(text, min_size=1, max_size=3))),
        red_flags=tuple(draw(st.lists(text, max_size=3))),
        key_claims=tuple(
            draw(
                st.lists(
                    st.builds(Claim, text, st.sampled_from(["supported", "mixed", "weak", "unsupported"]), text),
                    max_size=3,
                )
            )
        ),
        citations=tuple(
            draw(st.lists(st.builds(Citation, st.just("https://a.example/b|c"), text, st.just("") | text), max_size=3))
        ),
        extra=draw(st.dictionaries(st.sampled_from(["NOTES", "__XX", "SCORES"]), text, max_size=2)),
    )

    def written(fields: Sequence[str]) -> str:
        return draw(st.sampled_from(["- ", "* ", "• ", "1. ", "23. "])) + in_lines(draw, " | ".join(fields))

    def lines(rows: Sequence[Sequence[str]], empty: str = "NONE") -> str:
        return "\n".join(written([field.replace("|", "\\|") for field in row if field]) for row in rows) or empty

    def number(score: float) -> str:
        return draw(st.sampled_from([f"{score:.1f}", f"{score:04.1f}"] + [f"{score:.0f}"] * (score % 1 == 0))) + draw(
            st.sampled_from(["", "/10"])
        )

    scores = draw(st.permutations(list(wanted.subscores._asdict().items())))
    sections = {
        "SUMMARY": draw(st.sampled_from([" ", "", "\n"])) + wanted.summary.replace("|", "\\|"),
        "EVIDENCE_BULLETS": "\n" + lines([[bullet] for bullet in wanted.evidence_bullets]),
        "SUBSCORES": "".join(f"\n{name}: {number(score)}" for name, score in scores),
        "KEY_CLAIMS": "\n" + lines([[claim.claim, claim.support_level, claim.why] for claim in wanted.key_claims]),
        "RED_FLAGS": "\n" + lines([[flag] for flag in wanted.red_flags]),
        "CITATIONS": "\n" + lines([[c.url, c.title, c.snippet] for c in wanted.citations]),
        **{name: "\n" + text for name, text in wanted.extra.items()},
    }
    marks = st.sampled_from(["{}:", "{}:", "**{}:**", "**{}**:", "## {}:", "#{}:", "# **{}:**"])
    order = draw(st.permutations(list(sections)))
    whole = "\n".join(["BUNKD_V1", *(draw(marks).format(name) + sections[name] for name in order)]) + "\n"
    if draw(st.booleans()):
        whole = f"```\n{whole}```\n"
    space = draw(st.sampled_from(["\n", "\r\n", " \n", "\n\n", " \r\n \r\n"]))
    return draw(st.sampled_from(["", "\ufeff"])) + whole.replace("\n", space), wanted


@settings(deadline=None, max_examples=EXAMPLES // 4)
@given(reports())
def test_every_report_of_the_grammar_is_read_as_it_says(report: tuple[str, Report]) -> None:
    text, wanted = report
    assert parse(text) == wanted


LINES = st.sampled_from(
    ["BUNKD_V1", "", " ", "NONE", "- x", "* ", "  more", " x", "NOTES:", "**NOTES:** x", "NOTES: x", "```", "~~~"]
    + ["- c | weak | w", "- a | b", "- c | Mixed | w | x", "- https://a.example | t", "- https://a.example:x", "1.y"]
    + ["12. y", "HE: 1", "HE: 10.5", "AT: 3.5/10", "MO: 0.0", "PV: 7.3", "QQ: 1", "HE : 1", "- | weak | w", "\ufeff"]
    + [f"{name}:" for name in NAMES]
    + [f"{name}: x" for name in NAMES]
    + [f" {name}:" for name in NAMES]
    + [f"**{name}:**" for name in NAMES]
    + [f"**{name} **:" for name in NAMES]
    + [f"**{name}:" for name in NAMES]
    + [f"## {name}: ##" for name in NAMES]
)


@st.composite
def nearly_reports(draw: st.DrawFn) -> str:
    """A report in which some lines or characters were changed."""
    text = draw(st.sampled_from([WHOLE, SMALL]) | reports().map(lambda report: report[0]))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 5)):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, draw(LINES))
            case 2:
                lines.insert(at, draw(st.sampled_from(lines)))
            case 3:
                lines[at] = draw(LINES)
            case 4:
                lines[at] = "  " + lines[at]
            case _:
                place = draw(st.integers(0, len(lines[at])))
                new = draw(st.sampled_from([*" |:#*_-.0159\r\t\ufeff\u0664\u2028", ""]))
                lines[at] = lines[at][:place] + new + lines[at][place + draw(st.integers(0, 1)) :]
        text = "\n".join(lines)
    return text


@settings(deadline=None, max_examples=EXAMPLES)
@given(nearly_reports())
@example("BUNKD_V1\n" * 3)
def test_exactly_what_the_grammar_accepts_is_accepted(text: str) -> None:
    assert accepted(text) is in_the_grammar(text)


@settings(deadline=None)
@given(st.text() | st.lists(LINES | st.text(max_size=9)).map("\n".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    accepted("BUNKD_V1\n" + text)
    assert accepted(text) is in_the_grammar(text)


@pytest.mark.parametrize(
    "line", ["#" * 100_000, "*" * 100_000, "A" * 100_000, " " * 100_000 + "x", "- " * 50_000, "1" * 100_000]
)
def test_long_lines_take_no_long_time(line: str) -> None:
    began = time.process_time()
    assert parse(changed("SUMMARY: s", f"SUMMARY: s\n{line}", SMALL)).summary
    assert not accepted(changed("PV: 4", f"PV: {line}", SMALL))
    assert time.process_time() - began < 1
