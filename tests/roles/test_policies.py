"""Row-level security on the jobs table: what a policy allows goes on as without one, the rest is refused in words."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.errors import RightMissing, StoreError
from holdfast.store.base import Store
from tests.factories import a_queued_job, claim, new_job
from tests.roles.places import Roles

# Each enqueuer has the queue of its name; workers have all, and so has who looks, but for one queue.
POLICIES = """
alter table {s}.jobs enable row level security;
create policy work on {s}.jobs to "{schema}_worker" using (true);
create policy enqueue on {s}.jobs to "{schema}_enqueuer" using (queue = split_part(current_user, '_login_', 2));
create policy look on {s}.jobs for select to "{schema}_reader" using (queue <> 'payroll');
"""


@pytest.fixture
def mail(roles: Roles) -> Store:
    """The store of one that may enqueue into one queue."""
    roles.sql(POLICIES.replace("{schema}", roles.schema))
    return roles.store(roles.login("mail", "enqueuer"))


def test_an_enqueuer_has_the_queue_that_its_policy_allows(roles: Roles, mail: Store) -> None:
    assert mail.enqueue(new_job(queue="mail")).created
    first = mail.enqueue(new_job(queue="mail", key="k"))
    again = mail.enqueue(new_job(queue="mail", key="k", priority=5))
    assert (again.id, again.created) == (first.id, False)
    done = [
        job
        for chunk in mail.enqueue_many([new_job(queue="mail", key=key) for key in (None, "k", "l")])
        for job in chunk
    ]
    assert [job.created for job in done] == [True, False, True]
    before = roles.contents()
    for refused in (
        lambda: mail.enqueue(new_job(queue="payroll")),
        lambda: mail.enqueue(new_job(queue="payroll", key="m")),
        lambda: list(mail.enqueue_many([new_job(queue="mail"), new_job(queue="payroll")])),
        lambda: list(mail.enqueue_many([new_job(queue="mail", key="n"), new_job(queue="payroll", key="o")])),
    ):
        with pytest.raises(RightMissing, match="row-level security policy for table") as error:
            refused()
        assert "see which rows the policies of this table allow this user" in str(error.value)
        assert "sql roles" not in str(error.value)
    assert roles.contents() == before


def test_a_key_that_a_hidden_job_has_is_told(roles: Roles, mail: Store) -> None:
    payroll = roles.store(roles.login("payroll", "enqueuer"))
    theirs = payroll.enqueue(new_job(queue="payroll", key="k"))
    before = roles.contents()
    with pytest.raises(StoreError, match="or a job has it that this user may not see") as error:
        mail.enqueue(new_job(queue="mail", key="k", priority=9))
    assert error.value.number == "HF3102"
    with pytest.raises(StoreError, match="HF3102"):
        list(mail.enqueue_many([new_job(queue="mail", key="k")]))
    assert roles.contents() == before
    assert theirs.created


def test_workers_and_those_who_look_go_on(roles: Roles, mail: Store) -> None:
    worker = roles.store(roles.login("worker", "worker"))
    reader = roles.store(roles.login("reader", "reader"))
    ids = [mail.enqueue(new_job(queue="mail")).id, a_queued_job(worker, queue="payroll")]
    many = [job for chunk in worker.enqueue_many([new_job(queue="mail")] * 3) for job in chunk]
    assert [job.id for job in reader.reads.jobs()] == [many[2].id, many[1].id, many[0].id, ids[0]]
    assert [job.queue for job in worker.reads.jobs()] == ["mail"] * 3 + ["payroll", "mail"]
    assert len(claim(worker, limit=10).jobs) == 5
    reader.reads.depths()
    reader.reads.waiting()


def test_a_bulk_enqueue_by_who_could_choose_ids_keeps_to_policies(roles: Roles, mail: Store) -> None:
    """COPY knows no policies, so jobs are inserted."""
    theirs = f'"{roles.schema}_worker"'
    roles.sql(f"create policy own on {{s}}.jobs to {theirs} using (true) with check (queue <> 'payroll')")
    roles.sql("drop policy work on {s}.jobs")
    worker = roles.store(roles.login("worker", "worker"))
    done = [job for chunk in worker.enqueue_many([new_job(queue="mail")] * 3000) for job in chunk]
    assert len({job.id for job in done}) == 3000
    with pytest.raises(RightMissing, match="row-level security"):
        list(worker.enqueue_many([new_job(queue="payroll")] * 2))


def test_on_a_connection_of_ones_own_a_policy_is_told_too(roles: Roles, mail: Store) -> None:
    url = roles.login("other", "enqueuer").url
    with psycopg.connect(url) as connection, pytest.raises(RightMissing, match="row-level security"):
        mail.enqueue_on(connection, new_job(queue="mail"))
