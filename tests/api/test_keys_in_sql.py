"""The page about keys: what it shows in SQL does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import Fail, Holdfast, State
from tests.contract.places import raw

PAGE = (Path(__file__).parents[2] / "docs" / "keys.md").read_text()
POSTGRES, SQLITE = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def statements(hf: Holdfast) -> list[str]:
    postgres = hf.settings.url.startswith("postgres")
    text = re.sub("--.*", "", POSTGRES.replace("holdfast.", f'"{hf.settings.schema}".') if postgres else SQLITE)
    return [part.replace("{", "{{").replace("}", "}}") for part in text.split(";") if part.strip()]


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_an_insert_takes_over_the_key_of_a_finished_job(hf: Holdfast, end: str) -> None:
    @hf.task
    def render(page: str) -> None:
        if end == "failed":
            raise Fail("no")

    first = render.using(key="home").enqueue("home")
    hf.drain()
    given_up, *_, insert = (text for text in statements(hf) if "select id, state" not in text)
    with raw(hf.settings) as sql:
        sql(given_up)
        [(id,)] = sql(insert)
        assert sql(insert) == [], "the second one finds the first"
        sql.connection.commit()
    assert str(id) != first.id
    again = render.using(key="home").enqueue("other")
    assert (again.id, again.created) == (str(id), False)
    assert hf.drain() == 1


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_function_retries_the_failed_job_that_has_the_key(hf: Holdfast) -> None:
    @hf.task
    def render(page: str) -> None:
        raise Fail("no")

    first = render.using(key="home").enqueue("home")
    hf.drain()
    _, retry, insert, held = statements(hf)
    with raw(hf.settings) as sql:
        assert [str(id) for (id,) in sql(retry)] == [first.id]
        assert (sql(retry), sql(insert)) == ([], [])
        assert [(str(id), state) for id, state in sql(held)] == [(first.id, State.QUEUED)]
        sql.connection.commit()
    assert hf.drain() == 1
