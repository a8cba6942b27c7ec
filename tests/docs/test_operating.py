"""What the page on operating says and no snippet shows."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from holdfast import Holdfast, JobContext
from tests.servers import ROLES_PASSWORD, as_role, drop_schema, new_schema, shared_postgres

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()


def test_a_role_with_the_rights_on_the_page_can_do_everything_but_migrate() -> None:
    [grants] = re.findall(r"```sql\n(create role.*?)```", PAGE, re.DOTALL)
    schema = new_schema()
    grants = grants.replace("app_worker", f"{schema}_worker").replace("schema holdfast", f"schema {schema}")
    with Holdfast(shared_postgres(), schema=schema) as owner, psycopg.connect(shared_postgres()) as connection:
        owner.migrate()
        connection.execute(grants.encode())
        connection.execute(f"alter role {schema}_worker login password '{ROLES_PASSWORD}'".encode())
    url = as_role(shared_postgres(), f"{schema}_worker")
    try:
        with Holdfast(url, schema=schema) as app:

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
            assert [keyed.result, jobs[4].result] == [9, 4]
            jobs[3].retry()
            jobs[3].cancel()
            jobs[3].delete()
            app.pause(queue="default")
            app.resume(queue="default")
            app.store.purge(0, finished=1, failed=1)
    finally:
        drop_schema(shared_postgres(), schema)
        with psycopg.connect(shared_postgres()) as connection:
            connection.execute(f"drop owned by {schema}_worker; drop role {schema}_worker".encode())
