"""A job is the same job whether it was enqueued alone or with many others: to the byte, in every column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checking
from hypothesis import strategies as st

from holdfast import Holdfast, Secret
from holdfast.harmless import harmless
from holdfast.model.text import fits_in_a_list
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.postgres.codec import KINDS
from holdfast.store.postgres.enqueue import PIECE
from holdfast.tasks.task import Bound, Enqueuer
from tests.contract.places import Raw, raw
from tests.factories import Clock

ODD = ["\t\n\r\\", "\\N", "\\.", '"', "'", "{}", "ﬀ𝄞é", "\x01\x1f\x7f\x80\ufeff", "a,b", "null", "\\t"]
LARGEST = 2**64 - 1

texts = st.one_of(st.sampled_from(ODD), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
names = texts.map(lambda text: harmless(text)[:100]).filter(bool)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), LARGEST), texts,
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)  # fmt: skip
seconds = st.integers(0, 3 * 10**12).map(lambda milliseconds: milliseconds / 1000)
options = st.fixed_dictionaries(
    {},
    optional={
        "queue": names.filter(fits_in_a_list),
        "priority": st.integers(-100, 100),
        "max_attempts": st.integers(1, 10_000),
        "expires": seconds,
        "key": names,
        "tags": st.lists(names, max_size=3),
        "correlation_id": names,
        "delay": seconds,
    },
).filter(lambda given: cast(float, given.get("delay", 0.0)) < cast(float, given.get("expires", 4e9)))  # it can start
# In how many ways arguments can be given: by place, by name, some left to their defaults, marked as secret.
calls = st.one_of(
    st.tuples(st.just("short"), st.tuples(values, values), st.just({})),
    st.tuples(st.just("short"), st.tuples(values), st.fixed_dictionaries({"second": values})),
    st.tuples(st.just("long"), st.tuples(values), st.fixed_dictionaries({}, optional={"b": values, "c": values})),
    st.tuples(st.just("long"), st.tuples(values, values), st.fixed_dictionaries({}, optional={"c": values})),
    st.tuples(st.just("größe"), st.just(()), st.fixed_dictionaries({"card": texts}, optional={"größe": values})),
)


class Place:
    def __init__(self, app: Holdfast, database: Raw) -> None:
        self.app = app
        self.database = database

        @app.task
        def short(first: Any, second: Any) -> None: ...

        @app.task
        def long(a: Any, /, b: Any = 1, *, c: Any = None) -> None: ...

        @app.task(name="größe", queue="some queue", priority=7)
        def marked(größe: Any = 1, *, card: Secret[str]) -> None: ...

    def bound(self, call: tuple[str, tuple[Any, ...], dict[str, Any]], using: dict[str, Any]) -> Bound[Any]:
        task, args, kwargs = call
        enqueuer: Enqueuer[..., Any] = self.app.find_task(task)
        return enqueuer.using(**cast(Any, using)).bind(*args, **kwargs)

    def rows(self, ids: list[str]) -> list[tuple[Any, ...]]:
        """Every column of the job but the id, as the database has it."""
        postgres = self.app.settings.url.startswith("postgres")
        everything = "j.*, j.args::text, j.tags::text" if postgres else "j.*"
        if not postgres:  # says who counts the insert, and is no part of the job
            self.database("update {jobs} set counted = null")
        found = {row[0]: row[1:] for row in self.database(f"select {everything} from {{jobs}} j")}
        self.database.connection.rollback()
        return [found[int(id)] for id in ids]

    def check(self) -> None:
        """Every row satisfies the table's constraints."""
        if self.app.settings.url.startswith("sqlite"):
            assert self.database("pragma integrity_check") == [("ok",)]

    def clear(self) -> None:
        self.check()
        self.database("delete from {jobs}")
        self.database.connection.commit()


@pytest.fixture
def place(hf: Holdfast, settings: Settings, stores: Callable[..., Store], clock: Clock) -> Iterator[Place]:
    hf._withhold(stores(clock=clock))
    with raw(settings) as database:
        yield Place(hf, database)


@checking(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(drawn=st.lists(st.tuples(calls, options), min_size=1, max_size=8))
def test_many_are_kept_as_each_would_be(place: Place, drawn: list[Any]) -> None:
    jobs = [place.bound(call, using) for call, using in drawn]
    alone = [place.app._submit(job) for job in jobs]
    expected = place.rows([job.id for job in alone])
    place.clear()
    together = place.app.enqueue_many(jobs)
    assert place.rows([job.id for job in together]) == expected
    assert [job.created for job in together] == [job.created for job in alone]
    assert [job.task for job in together] == [job.task for job in alone]
    place.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.store.sqlite.enqueue.CHUNK", 1)  # as of a long stream
        together = place.app.enqueue_many(jobs)
    assert place.rows([job.id for job in together]) == expected
    place.clear()


def test_instants_of_any_age_are_kept_as_they_would_be_alone(place: Place) -> None:
    moments = [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]  # fmt: skip
    jobs = [place.bound(("short", (1, 2), {}), {"run_at": moment}) for moment in moments]
    alone = [place.app._submit(job).id for job in jobs]
    together = [job.id for job in place.app.enqueue_many(jobs)]
    assert place.rows(together) == place.rows(alone)
    place.check()


def test_more_kinds_than_are_remembered_stay_apart(place: Place) -> None:
    """And jobs of one kind keep their own arguments, from piece to piece."""
    count = max(KINDS, 2 * PIECE) + 10
    jobs = [place.bound(("short", (n, "x"), {}), {"correlation_id": f"c{n}"}) for n in range(count)]
    jobs += [place.bound(("short", (n, "y"), {}), {}) for n in range(count)]
    ids = [job.id for job in place.app.enqueue_many(jobs)]
    found = {
        str(id): (correlation, args)
        for id, correlation, args in place.database("select id, correlation_id, cast(args as text) from {jobs}")
    }
    assert [found[id] for id in ids] == [(f"c{n}", f'{{"first":{n},"second":"x"}}') for n in range(count)] + [
        (None, f'{{"first":{n},"second":"y"}}') for n in range(count)
    ]
