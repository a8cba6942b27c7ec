"""Links between the pages lead somewhere: to a file that is there, to a heading that is there. Without the site
generator, which finds some of it itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
PLACES = (ROOT, ROOT / "src" / "holdfast", ROOT / "tests")  # what the names of files on pages begin at
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """As Python-Markdown, and so the site, makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def in_navigation(entry: Any) -> list[str]:
    match entry:
        case str():
            return [entry]
        case dict():
            return [page for value in entry.values() for page in in_navigation(value)]
        case _:
            return [page for value in entry for page in in_navigation(value)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}, and there is no such file"
        if DOCS in page.parents:
            assert DOCS in found.parents, f"{page.name} links to {target}, which is not part of the site"
        if anchor:
            assert anchor in anchors(found), f"{page.name} links to {target}; {found.name} has {sorted(anchors(found))}"


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    listed = in_navigation(site["nav"])
    assert len(listed) == len(set(listed))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert set(listed) == there, "the navigation is in zensical.toml"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_ours_a_page_names_is_there(page: Path) -> None:
    for name in re.findall(
        r"`((?:src|model|store|tasks|worker|runners|cli|web|tests|docs|deploy|scripts|bench)/[\w./@-]+)`",
        page.read_text(),
    ):
        assert any((place / name).exists() for place in PLACES), f"{page.name}: {name}"


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 60
