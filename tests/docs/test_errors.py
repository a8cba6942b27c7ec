"""The index of errors has every number there is, and no other."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import holdfast
from holdfast import errors
from holdfast.errors import BadSettings, HoldfastError, JobFailed, StoreUnavailable
from holdfast.model.filter import BadFilter

SOURCE = Path(holdfast.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
RETRIES = PAGE.parent / "retries.md"
CODED = ("model", "runners", "tasks", "worker", "store")
ROW = re.compile(r"^\| (HF\d{4}) \| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def test_the_index_is_complete() -> None:
    # HF4… are findings of the doctor's, on a page of their own (tests/doctor).
    used = {number for file in SOURCE.rglob("*.py") for number in re.findall(r'"(HF[^4]\d{3})"', file.read_text())}
    rows = ROW.findall(PAGE.read_text())
    listed = [row[0] for row in rows]
    assert sorted(used) == sorted(listed)
    assert listed == sorted(listed)
    assert all(meaning.endswith(".") and (fix.endswith(".") or fix.endswith("?")) for _, _, meaning, fix in rows)


def test_every_code_that_a_job_may_get_is_listed() -> None:
    text = "".join(file.read_text() for file in SOURCE.rglob("*.py") if file.parent.name in CODED)
    text += (SOURCE / "errors.py").read_text() + (SOURCE / "store" / "sqlite" / "expire.sql").read_text()
    named = set(re.findall(r'\bError\(\s*"?([A-Z_]+)\b', text)) | set(re.findall(r'\berror, "([A-Z_]+)", hide', text))
    named |= set(re.findall(r"\b(?:error_)?code(?:: str)? = [\"']([A-Z_]+)[\"']", text))
    assert {"TIMED_OUT", "BAD_ARGUMENTS", "RESULT_MISFIT", "RETRY", "EXPIRED", "FAILED"} <= named
    listed = RETRIES.read_text().partition("## Codes")[2]
    assert sorted(named) == sorted(re.findall(r"^\| `([A-Z_]+)` \|", listed, re.MULTILINE))


def test_each_class_has_a_number_of_its_own() -> None:
    classes = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, HoldfastError)]
    numbers = [found.__dict__.get("number") for found in [*classes, BadFilter]]
    assert None not in numbers
    assert len(set(numbers)) == len(numbers)
    rows = {number: name for number, name, *_ in ROW.findall(PAGE.read_text())}
    assert set(rows.values()) <= set(holdfast.__all__), "they can be caught by name"
    assert {found.__dict__["number"]: found.__name__ for found in [*classes, BadFilter]}.items() <= rows.items()


@pytest.mark.parametrize(
    "error",
    [
        BadSettings("no such thing", number="HF1102"),
        StoreUnavailable("away"),
        JobFailed("job 1 failed", code="X", job_id="1"),
    ],
)
def test_the_number_comes_first_and_travels(error: HoldfastError) -> None:
    assert str(error) == f"{error.number} {error.message}"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
