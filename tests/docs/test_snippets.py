"""Every snippet of the documentation, run in order, page by page."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from tests.docs.snippets import (
    LANGUAGES,
    PAGES,
    POSTGRES_URL,
    SHOWN,
    Session,
    Snippet,
    assert_printed,
    every_snippet,
    lacks,
    runs_on_postgres,
    snippets,
)
from tests.servers import in_database, shared_postgres

MOST_NOT_RUN = 5
ROLES_OF_PAGES = "select rolname from pg_roles where rolname like 'holdfast\\_%' or rolname like 'app\\_%'"
TRIED_ELSEWHERE = {"cli.md"}  # lists commands without an application around them; tests/docs/test_cli.py tries them


@contextmanager
def a_database() -> Iterator[str]:
    """One of its own for a page: what it creates is in nobody's way, and its roles are gone when it is."""
    name = f"docs_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(shared_postgres(), autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
    url = in_database(shared_postgres(), name)
    try:
        yield url
    finally:
        with psycopg.connect(shared_postgres(), autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)".encode())
            for (role,) in connection.execute(ROLES_OF_PAGES).fetchall():
                connection.execute(f'drop role "{role}"'.encode())


def run(page: Path, session: Session) -> None:
    try:
        for snippet in snippets(page):
            if snippet.not_run is None:
                session.run(snippet)
            elif snippet.language == "python":
                compile(snippet.code, str(snippet), "exec")
    finally:
        session.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_snippet_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    if missing := lacks(page):
        pytest.skip(f"{missing} is not installed")
    directory = tmp_path / "reader"
    directory.mkdir()
    if not any(POSTGRES_URL.search(snippet.code) for snippet in snippets(page) if not snippet.not_run):
        run(page, Session(directory))
        return
    with a_database() as url:
        run(page, Session(directory, postgres=url))


@pytest.mark.parametrize("page", [page for page in PAGES if runs_on_postgres(page)], ids=lambda page: page.stem)
def test_every_snippet_of_a_page_runs_on_postgresql(page: Path, tmp_path: Path) -> None:
    directory = tmp_path / "reader"
    directory.mkdir()
    with a_database() as url:
        store = open_store(Settings(url=url))
        store.schema.migrate()
        store.close()
        run(page, Session(directory, postgres=url, on_postgres=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_snippet_escapes_the_runner(page: Path) -> None:
    """By a language it does not know, or by being indented."""
    fences = re.findall(r"^([ \t]*)(?:```|~~~)(.*)$", page.read_text(), re.MULTILINE)
    assert not [info for indent, info in fences if indent]
    if page.name not in TRIED_ELSEWHERE:
        assert {info.split()[0] if info else "" for _, info in fences[::2]} <= LANGUAGES | SHOWN
    assert {info for _, info in fences[1::2]} <= {""}


def test_few_snippets_are_not_run_and_each_says_why() -> None:
    excused = [snippet for snippet in every_snippet() if snippet.not_run]
    assert len(excused) <= MOST_NOT_RUN, [str(snippet) for snippet in excused]
    assert all(len(snippet.not_run or "") > 10 for snippet in excused)


def test_the_readme_offers_targets_that_exist() -> None:
    readme, makefile = PAGES[0], (PAGES[0].parent / "Makefile").read_text()
    [offered] = [snippet.code for snippet in snippets(readme) if "make " in snippet.code]
    targets = [line.split()[1] for line in offered.splitlines()]
    assert "test" in targets
    for target in targets:
        assert f"\n{target}:" in makefile, target


# -- the runner itself -------------------------------------------------------------------------------------------------

PAGE = """
```python
# app.py
GREETING = "hello"
```

```sh
pip install nothing
python -c "import app; print(app.GREETING)"
```

```output
hel…
```

Some words.

```python
import asyncio
await asyncio.sleep(0)
name = "you"
```

```python
print(name, "there")
print("and more")
```
```text
you there
…
```

```console
$ echo one
one
$ echo two
two
```

<!-- not run: there is no such database -->
```python
import nowhere
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    (tmp_path / "reader").mkdir()
    session = Session(tmp_path / "reader")
    yield session
    session.close()


def test_a_page_is_read_and_run(page: Path, session: Session) -> None:
    found = snippets(page)
    assert [(s.language, s.file, s.not_run is not None) for s in found] == [
        ("python", "app.py", False),
        ("sh", None, False),
        ("python", None, False),
        ("python", None, False),
        ("console", None, False),
        ("python", None, True),
    ]
    run(page, session)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("hel…", "bye…"), r"page\.md:8 shows\nbye"),
        (('name = "you"', 'name = "me"'), "page.md:25 shows"),
        (("one\n$", "three\n$"), "page.md:34 shows"),
        (('name = "you"', "raise KeyError('broken')"), r"(?s)page\.md:19 failed.*line 21.*KeyError"),
        (("import app;", "import apps;"), r"(?s)page\.md:8 ended with status 1.*apps"),
        (("import nowhere", "import no where"), "invalid syntax"),
    ],
)
def test_a_page_that_is_wrong_fails(page: Path, session: Session, change: tuple[str, str], said: str) -> None:
    page.write_text(PAGE.replace(*change))
    with pytest.raises((AssertionError, SyntaxError), match=said):
        run(page, session)


def test_a_line_of_dots_stands_for_any_lines() -> None:
    snippet = Snippet(PAGES[0], 1, "sh", "")
    assert_printed("a\nb\nc\nd", "a\n…\nd", snippet)
    assert_printed("took 12 ms\n", "took … ms", snippet)
    with pytest.raises(AssertionError):
        assert_printed("a\nb\nc", "a\nb", snippet)
    with pytest.raises(AssertionError):
        assert_printed("took\n12 ms", "took … ms", snippet)
