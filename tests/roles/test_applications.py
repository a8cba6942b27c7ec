"""Applications whose users have the roles: what they do all day."""

from __future__ import annotations

import psycopg
import pytest

from holdfast import Holdfast, JobContext
from holdfast.app import Looking
from holdfast.http.dashboard.page import Page
from holdfast.http.dashboard.pages import PAGES
from holdfast.store.postgres.store import PostgresStore
from tests.factories import new_job
from tests.http.dashboard import looking
from tests.roles.matrix import SCENE
from tests.roles.places import Roles


def test_a_worker_can_do_everything_but_migrate(roles: Roles) -> None:
    with Holdfast(roles.login("worker", "worker").url, schema=roles.schema) as app:

        @app.task(retry=None, max_attempts=2)
        def task(ctx: JobContext, number: int) -> int:
            ctx.checkpoint(number)
            if number == 3:
                raise ZeroDivisionError
            with ctx.transaction() as tx:
                tx.set_result(number)
            return number

        jobs = app.enqueue_many(task.bind(number) for number in range(5))
        keyed = task.using(key="k").enqueue(9)
        assert app.drain() == 6
        assert [keyed.refresh().result, jobs[4].refresh().result] == [9, 4]
        jobs[3].retry()
        jobs[3].cancel()
        jobs[3].delete()
        app.pause_queue("default")
        app.resume_queue("default")
        app.store.retention.purge(0, finished=1, failed=1)
        app.store.audit.purge(kept=1)


def test_nobody_but_the_owner_can_rewrite_who_did_what(roles: Roles) -> None:
    url = roles.login("worker", "worker").url
    with Holdfast(url, schema=roles.schema) as app:
        app.pause_queue("mail", by="ops")
    with psycopg.connect(url) as connection:
        for column in ("by", "at", "verb", "what", "reason", "parameters", "job_id"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(f'update "{roles.schema}".audit set {column} = null'.encode())
        done = connection.execute(f'update "{roles.schema}".audit set refused = 1'.encode())
        assert done.rowcount == 1, "how far a call got is what workers write"


def double(n: int) -> int:
    return 2 * n


def test_who_may_enqueue_and_look_can_wait_for_results(roles: Roles) -> None:
    url = roles.login("web", "enqueuer", "reader").url
    with (
        Holdfast(url, schema=roles.schema) as web,
        Holdfast(roles.login("worker", "worker").url, schema=roles.schema) as app,
    ):
        job = web.task(double).enqueue(21)
        app.task(double)
        assert app.drain() == 1
        assert job.wait(timeout=30) == 42


def test_an_enqueuer_finds_out_whether_a_bulk_was_committed(roles: Roles) -> None:
    """After a lost reply: it may not read jobs, but see that one is there."""
    store = roles.store(roles.login("enqueuer", "enqueuer"))
    assert isinstance(store, PostgresStore)
    id = int(store.enqueue(new_job()).id)
    assert store.enqueueing._is_there(id)
    assert not store.enqueueing._is_there(id + 1)
    assert not store.enqueueing._is_there(id - 1)


@pytest.mark.parametrize("page", [page for page in PAGES if page.role == "viewer"], ids=lambda page: page.name)
def test_who_may_read_can_look_at_every_page_of_the_dashboard(kept_roles: Roles, page: Page) -> None:
    kept_roles.sql(SCENE)
    path = page.path.format(id="5", group="0123456789")
    kept_roles.sql("update {s}.jobs set error_fingerprint = '0123456789', error_code = 'GONE' where id = 5")
    seen = {}
    for role in ("reader", "enqueuer"):
        settings = kept_roles.login(f"{role}_{page.name}", role)
        with Holdfast(settings.url, schema=settings.schema) as app, Looking(app, alone=True) as only_looks:
            seen[role] = looking.Looking(only_looks, "viewer").at(path)
    assert seen["reader"].status == 200, seen["reader"].text
    assert "HF3006" not in seen["reader"].text
    assert seen["enqueuer"].status == 500, "the login of the server lacks a right: it is for its operator to mend"
    assert "HF3006" in seen["enqueuer"].text
