"""Many jobs at once, by the filter that also lists them."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast import BadArguments, Fail, Holdfast
from holdfast.model.job import Changed


def test_jobs_are_found_and_steered_by_one_filter(hf: Holdfast) -> None:
    @hf.task
    def pay(n: int) -> int:
        if n < 3:
            raise Fail("no", code="NO_MONEY")
        return n

    for n in range(5):
        pay.enqueue(n)
    assert (hf.count(), hf.count("args.n:3"), hf.count("state:failed")) == (5, 1, 0)
    with pytest.raises(BadArguments, match="HF1203 a filter is a text"):
        hf.count(None)  # type: ignore[arg-type]
    assert hf.pause_jobs("args.n:0") == Changed(1, 0)
    hf.drain()
    assert [job.id for job in hf.jobs("state:failed error:no_money since:1h", limit=1)] == ["3"]
    assert hf.jobs("task:pay", state="paused")[0].args == {"n": 0}
    assert hf.resume_jobs("state:paused") == Changed(1, 0)
    assert hf.retry("state:failed") == Changed(2, 0)
    assert hf.cancel("state:queued", "not today") == Changed(3, 0)
    assert hf.delete("task:pay") == Changed(5, 0)
    assert hf.jobs() == []


def test_a_bulk_verb_wants_a_filter_that_says_something(hf: Holdfast) -> None:
    for verb in (hf.retry, hf.cancel, hf.delete, partial(hf.change, priority=1), hf.pause_jobs, hf.resume_jobs):
        with pytest.raises(BadArguments, match="HF1203 an empty filter would match every job"):
            verb(" ")
        with pytest.raises(BadArguments, match="no qualifier 'sate'"):
            verb("sate:failed")
