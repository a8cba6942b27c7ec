"""Jobs in PostgreSQL: many hosts, one database."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg

from holdfast.errors import LeaseLost, OutcomeUnknown, Steer, StoreError
from holdfast.model.job import Claimed, Look, Request, Thing
from holdfast.model.outcome import Outcome, Progress
from holdfast.model.peers import CHANNELS, Place
from holdfast.settings import Settings
from holdfast.store.base import JobId, Ref, Row, Transaction, success
from holdfast.store.columns import Lists
from holdfast.store.migrate import OLDEST_CODE, check_version, misfit, pending, turn
from holdfast.store.permits import Permits
from holdfast.store.pool import Pool
from holdfast.store.postgres.catalogue import found_and_fresh
from holdfast.store.postgres.claim_floors import Survey
from holdfast.store.postgres.codec import PostgresCodec
from holdfast.store.postgres.connect import (
    LOCK_TIMEOUT,
    Connection,
    cut_off,
    shares_sessions,
    translate,
    translated,
    usable,
)
from holdfast.store.postgres.enqueue import PostgresEnqueue
from holdfast.store.postgres.enqueue_connection import EnqueueConnection
from holdfast.store.postgres.exchange import CLAIMS, ENDINGS, SUCCESSES, Trip, held, numbers
from holdfast.store.postgres.floor_surveys import Surveys
from holdfast.store.postgres.listen import PostgresEar, begin_to_listen, listen
from holdfast.store.postgres.notify import Notifier, few
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.postgres.primary import Primary
from holdfast.store.statements import Statements, source

MIGRATION_TURN = 60  # seconds to wait while another process migrates
# The role to migrate a schema as, if there is such a schema: the owner of our tables, if the user may be that one, and
# it may create tables there.
OWNER = """select o.rolname::text from pg_namespace n
    left join pg_class c on c.relnamespace = n.oid and c.relname = 'meta' and c.relkind = 'r'
    left join pg_roles o on o.oid = c.relowner and has_schema_privilege(o.oid, n.oid, 'create')
     and pg_has_role(o.oid, case when current_setting('server_version_num')::integer < 160000
                                 then 'member' else 'set' end)
    where n.nspname = %s"""

T = TypeVar("T")


class PostgresStore(PostgresEnqueue):
    def __init__(self, settings: Settings, *, clock: Callable[[], datetime] | None = None) -> None:
        self.settings = settings
        self.shown_url = settings.shown_url
        self.can_listen = settings.listen
        self._oldest: int | None = None
        self._clock = clock
        now = "%(now)s::timestamptz" if clock else "statement_timestamp()"
        tick = "%(now)s::timestamptz" if clock else "clock_timestamp()"
        self._schema = '"' + settings.schema + '"'
        self.codec = PostgresCodec()
        self.lists = Lists(stamps=clock is not None, expiry="extract(epoch from {} - @now)::float8")
        self.statements = Statements(
            "postgres",
            lists=self.lists,
            table=lambda name: f"{self._schema}.{name}",
            now=now,
            clock=tick,
            after=lambda name: f"({tick} + make_interval(secs => %({name})s::float8))",
            any_of=lambda name: f"= any(%({name})s::bigint[])",
            parameter=lambda name: f"%({name})s",
        )
        self._numbered: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self.channel = _channel(settings.schema)
        self.channels = [few(self.channel, number) for number in range(CHANNELS)]
        self.listen_everywhere = ";".join(f'listen "{name}"' for name in (self.channel, *self.channels)).encode()
        self._pool: Pool[Connection] = Pool(self._connect, usable, usable)
        self._posts: Pool[EnqueueConnection] = Pool(
            self._open_post, EnqueueConnection.in_order, EnqueueConnection.usable
        )
        self._trips: Pool[Trip] = Pool(self._open_trip, Trip.usable, Trip.usable)
        self._given_up = set()
        self._surveys = Surveys(self._survey)
        self.permits = Permits(settings.handler_connections)
        self._primary = Primary(settings)
        self._notifier = Notifier(self._connect)

    def _connect(self) -> Connection:
        return self._primary.connect()

    def _connect_listener(self, channel: str) -> Connection:
        connection = self._primary.connect("holdfast-listener")

        def notify(text: str) -> None:
            with self._use() as another:
                another.execute("select pg_notify(%s, %s)", (channel, text), prepare=False)

        self._on(connection, lambda connection: begin_to_listen(connection, channel, notify, self.settings))
        return connection

    def _open_post(self) -> EnqueueConnection:
        enqueue, _ = self._numbers(self.statements["enqueue"])
        fixed = self._clock is None
        return self._on(
            self._connect(), lambda connection: EnqueueConnection(connection, enqueue, self._values, fixed=fixed)
        )

    def _open_trip(self) -> Trip:
        return self._trip_on(self._connect())

    def _trip_on(self, connection: Connection) -> Trip:
        texts = {verb: self._with_history(verb) for verb in ENDINGS} | {
            name: self.statements[name] for name in (*CLAIMS, *SUCCESSES)
        }
        statements = {name: self._numbers(text) for name, text in texts.items()}
        self._surveys.forget()
        return self._on(
            connection,
            lambda connection: Trip(
                connection, statements, where=self.shown_url, prepare=self.settings.prepare, clock=self._clock,
                surveys=self._surveys, is_recorded=self._is_recorded, open_aside=self._open_aside,
            ),
        )  # fmt: skip

    def _open_aside(self, statements: Mapping[str, bytes]) -> Pipeline:
        return self._on(
            self._connect(), lambda connection: Pipeline(connection, statements, prepare=self.settings.prepare)
        )

    def _on(self, connection: Connection, begin: Callable[[Connection], T]) -> T:
        """Begin to use a new connection; what fails leaves none behind."""
        try:
            with translated(self.shown_url, connection):
                return begin(connection)
        except BaseException:
            connection.close()
            raise

    def _with_history(self, verb: str) -> str:
        """The verb's update, and the row of history it leaves, as one statement."""
        return self.statements.fill(
            f"with ended as ({source('postgres', verb)}), history as ("  # noqa: S608 - our own files
            "insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at, error_code, "
            "error_message, traceback, output) select id, :fence::uuid, life, number, worker, :outcome, started_at, "
            "@clock, error_code, error_message, :traceback, :output from ended where :outcome::text is not null "
            "on conflict (job_id, fence) do nothing) select state, queue, awaited from ended"
        )

    # -- set-up ------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        with self._use() as connection, connection.transaction():
            # One at a time, whoever comes: the others find the work done.
            connection.execute(f"set local lock_timeout = '{MIGRATION_TURN}s'", prepare=False)
            connection.execute("select pg_advisory_xact_lock(%s)", (turn(self.settings.schema),), prepare=False)
            connection.execute("set local lock_timeout = '2s'", prepare=False)  # for the tables: others work on them
            self._make_schema_or_act_as_owner(connection)
            found = self._version(connection)
            applied = pending("postgres", found or 0)
            for migration in applied:
                connection.execute(self.statements.with_tables(migration.sql).encode(), prepare=False)
            if applied:
                connection.execute(
                    self.statements.fill(
                        "insert into @meta (version, oldest_code) values (:version, :oldest_code) "
                        "on conflict (only_row) do update set version = excluded.version, "
                        "oldest_code = excluded.oldest_code"
                    ).encode(),
                    {"version": applied[-1].version, "oldest_code": OLDEST_CODE},
                    prepare=False,
                )
            self._check(connection)
        return [m.name for m in applied]

    def _make_schema_or_act_as_owner(self, connection: Connection) -> None:
        """What a migration makes is to belong to whoever owns the other tables, so that all who may be that role can
        migrate. Where that role may not create anything in the schema, the user goes on by rights of its own."""
        found = connection.execute(OWNER, (self.settings.schema,), prepare=False).fetchone()
        if found is None:
            connection.execute(f"create schema {self._schema}", prepare=False)
        elif found[0] is not None:
            connection.execute("select set_config('role', %s, true)", (found[0],), prepare=False)

    def pending(self) -> list[str]:
        with self._use() as connection:
            return [m.name for m in pending("postgres", self._version(connection) or 0)]

    def _version(self, connection: Connection) -> int | None:
        meta = f"{self.settings.schema}.meta"
        found = connection.execute("select to_regclass(%s)", (f'"{self.settings.schema}".meta',)).fetchone()
        if found is None or found[0] is None:
            return None
        row = connection.execute(self.statements["meta"].encode()).fetchone()
        if row is None:
            raise StoreError(
                f"the table {meta} in {self.shown_url} is empty: it is not one of ours, or was damaged", number="HF2104"
            )
        self.store_id, self._oldest = str(row[0]), int(row[2])
        return int(row[1])

    def check(self) -> None:
        with self._use() as connection:
            self._check(connection)

    def _check(self, connection: Connection) -> None:
        self._oldest = None
        found = self._version(connection)
        check_version("postgres", self.shown_url, found, self._oldest)

    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        with self._use() as connection:
            return found_and_fresh(connection, self.settings.schema)

    def shares_sessions(self) -> bool:
        with self._use() as connection:
            return shares_sessions(connection, self.settings)

    def look_around(self) -> None:
        self._primary.look_around()

    def writable(self) -> list[str]:
        return [f"{place} ({server or 'it does not say who it is'})" for place, server in self._primary.writable()]

    @property
    def has_several_hosts(self) -> bool:
        return self._primary.several

    def close(self) -> None:
        self._notifier.close()
        self._surveys.close()
        self._posts.close()
        self._trips.close()
        self._pool.close()

    # -- primitives --------------------------------------------------------------------------------------------

    @contextmanager
    def _use(self) -> Iterator[Connection]:
        with self._pool.use() as connection, translated(self.shown_url, connection):
            yield connection

    def _parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if self._clock is not None:
            parameters["now"] = self._clock()
        return parameters

    def _execute(self, connection: Connection, text: str, parameters: dict[str, Any]) -> psycopg.RawCursor[Any]:
        """One of our statements, its parameters numbered once: the driver would do it anew with every long one."""
        query, names = self._numbers(text)
        given = self._parameters(parameters)
        return psycopg.RawCursor(connection).execute(query, [given[name] for name in names], binary=True)

    def _numbers(self, text: str) -> tuple[bytes, tuple[str, ...]]:
        numbered = self._numbered.get(text)
        if numbered is None:
            numbered = self._numbered[text] = _number(text)
        return numbered

    def _rows(self, connection: Connection, text: str, parameters: dict[str, Any]) -> list[Row]:
        cursor = self._execute(connection, text, parameters)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._use() as connection, self._bounded(connection):
            yield _Transaction(self, connection)

    @contextmanager
    def _bounded(self, connection: Connection) -> Iterator[None]:
        """A transaction that waits for no lock for long. Where a session can't keep settings (behind a pooler), each
        transaction brings its own."""
        with connection.transaction():
            if not self.settings.prepare:
                connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
            yield

    def write(self, name: str, /, **parameters: Any) -> list[Row]:
        # In one message: there is no moment in which a frozen client holds the row's lock.
        with self._use() as connection:
            return self._rows(connection, self.statements[name], parameters)

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        try:
            return self.write(name, **parameters)
        except OutcomeUnknown:  # the connection broke under way: nothing was changed, so it is simply asked again
            return self.write(name, **parameters)

    # -- the worker's trip ---------------------------------------------------------------------------------------

    @contextmanager
    def trips(self) -> Iterator[Trip]:
        with self._trips.use() as trip:
            try:
                yield trip
            finally:
                trip.abandon()

    def _is_recorded(self, outcome: Outcome) -> bool:
        return bool(self.read("recorded", id=outcome.id, fence=outcome.fence))

    def _survey(self, queues: Sequence[str] | None, tasks: Sequence[str]) -> Survey:
        with self.transaction() as tx:
            [before] = tx.rows("walked")
            [found] = tx.rows("survey", queues=None if queues is None else list(queues), tasks=list(tasks))
            [after] = tx.rows("walked")
        lanes = json.loads(found.pop("lanes") or b"[]")
        walked = {kind: after[kind] - before[kind] for kind in after}
        return Survey(**found, **walked, lanes=lanes)

    def claim_of(self, fence: str) -> Claimed:
        with self._use() as connection:
            lease = {"fence": fence, "lease": self.settings.lease}
            if self._rows(connection, self.statements["burn"], lease):
                return Claimed()
            rows = self._execute(connection, self.statements["claim_of"], {"fence": fence}).fetchall()
        return Claimed([held(fence, row) for row in rows])

    def renew(self, fences: Sequence[str], held: Sequence[Ref], lease: float) -> tuple[set[str], list[Request]]:
        with self._use() as connection:
            renewed = self._rows(
                connection, self.statements["renew"], {"fences": numbers(fences), "held": len(held), "lease": lease}
            )
            concerns = self._rows(
                connection,
                self.statements["requests"],
                {"ids": numbers(ref.id for ref in held), "fences": numbers(ref.fence for ref in held)},
            )
        return {str(row["fence"]) for row in renewed}, [Request(**row) for row in concerns]

    def look(
        self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = (), *,
        open: bool = False,
    ) -> Look:  # fmt: skip
        with self._use() as connection:
            rows = self._rows(
                connection,
                self.statements["look"],
                {
                    "worker": worker, "tasks": list(tasks), "queues": None if queues is None else list(queues),
                    "crons": list(crons), "open": open,
                },
            )  # fmt: skip
        place = Place(rows[0].pop("rank"), rows[0].pop("count"))
        why = misfit("postgres", self.shown_url, rows[0].pop("version"), rows[0].pop("oldest_code"))
        return Look(**rows[0], misfit=why, place=place)

    def ahead(
        self, *, tasks: Sequence[str], queues: Sequence[str] | None, priority: int, due_at: Any, id: JobId, most: int
    ) -> tuple[int, JobId | None]:
        [found] = self.read(
            "ahead", tasks=list(tasks), queues=None if queues is None else list(queues), priority=priority,
            due_at=due_at, id=id, most=most,
        )  # fmt: skip
        return found["jobs"], found["first"]

    def purge(self, after_id: int, *, finished: float, failed: float, limit: int = 1000) -> tuple[int, int | None]:
        with self.transaction() as tx:
            [step] = tx.rows(
                "purge", after_id=after_id, limit=limit, minus_finished=-finished, minus_failed=-failed,
                minus_youngest=-min(finished, failed),
            )  # fmt: skip
        ended = step["reached"] is None or step["young"]
        return step["deleted"], None if ended else step["reached"]

    # -- a handler's own transaction -------------------------------------------------------------------------------

    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None) -> None:
        execute = self._execute_on(connection)
        _must_hold(ref, execute(self.statements["succeed_on"], success(ref, result, progress)))

    async def asucceed_on(
        self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None
    ) -> None:
        execute = await self._aexecute_on(connection)
        _must_hold(ref, await execute(self.statements["succeed_on"], success(ref, result, progress)))

    @contextmanager
    def user_transaction(self, note: str = "") -> Iterator[Any]:
        # A connection of its own, with nothing of ours set on it: what the handler runs there is its own affair, and so
        # is what the server refuses. That the database is away is not.
        if self._primary.several:
            with self._pool.use():  # a session of ours says which server it is
                pass
        connection = self._primary.connect("holdfast-handler", ours=False)
        ends = False
        with closing(connection):
            try:
                # In a block of psycopg's own, its commit() and rollback() are refused: they would part effect and
                # outcome.
                with connection.transaction():
                    yield connection
                    ends = True
            except Exception as error:
                driver = None if isinstance(error, Steer) else cut_off(connection, error)
                if driver is None:
                    raise
                # Only a commit may have happened all the same.
                raise translate(self.shown_url, driver, broken=ends, away=not ends) from error

    # -- wake-ups ----------------------------------------------------------------------------------------------------

    def notify(
        self,
        queues: Iterable[str] = (),
        finished: Iterable[JobId] = (),
        *,
        requests: bool = False,
        workers: bool = False,
    ) -> None:
        wakeups = [(self.channel, "q" + queue) for queue in queues]
        wakeups += [(self.channel + ":finished", f"f{id}") for id in finished]
        if requests:
            wakeups.append((self.channel, "r"))
        if workers:
            wakeups.append((self.channel, "w"))
        if wakeups:
            self._notifier.send(wakeups)

    def hint(self, queue: str, lane: tuple[str, int] | None = None, *, due_in: float = 0.0) -> None:
        self._notifier.send([self._hint(queue, lane, due_in)])

    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        channel = self.channel + ":finished" if finished else self.channel
        with translated(self.shown_url), self._connect_listener(channel) as connection:
            if not finished:
                connection.execute(self.listen_everywhere, prepare=False)
            heard("listening", "")
            listen(connection, heard, stop)

    def open_ear(self) -> PostgresEar:
        return PostgresEar(self._trip_on(self._connect_listener(self.channel)), self.shown_url, self.channels)


class _Transaction:
    def __init__(self, store: PostgresStore, connection: Connection) -> None:
        self._store = store
        self._connection = connection

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        for list_of_ids in ("ids", "fences"):
            if list_of_ids in parameters:
                parameters[list_of_ids] = numbers(parameters[list_of_ids])
        return self._store._rows(self._connection, self._store.statements[name], parameters)


def _number(text: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with its parameters by number, and their names in that order."""
    names: dict[str, int] = {}
    numbered = re.sub(r"%\((\w+)\)s", lambda m: f"${names.setdefault(m[1], len(names) + 1)}", text)
    return numbered.replace("%%", "%").encode(), tuple(names)


def _must_hold(ref: Ref, rows: list[Row]) -> None:
    if not rows:
        raise LeaseLost(f"job {ref.id} was taken over by someone else; roll this transaction back")


def _channel(schema: str) -> str:
    return f"holdfast:{schema}"
