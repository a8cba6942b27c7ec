"""Connections to PostgreSQL, and the one place where driver errors are translated into ours."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from contextlib import closing
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import ByteaBinaryLoader

from holdfast.errors import (
    BadSettings,
    OutcomeUnknown,
    ResultMisfit,
    RightMissing,
    RowLocked,
    SchemaOutdated,
    StoreError,
    StoreUnavailable,
    TooManyConnections,
    ValueRefused,
)
from holdfast.redact import hiding, scrub
from holdfast.settings import Settings
from holdfast.store.postgres.session import Answers, Session, Unanswered

Connection = Session

TRANSIENT_CLASSES = ("08", "40", "53", "57")  # connection, rollback, resources, operator intervention
CONNECT_TIMEOUT = 10  # seconds for a host to answer
LOCK_TIMEOUT = "2s"  # somebody's lock on one row must not stall a worker
VALUE_CLASSES = ("22", "23", "54")  # data exception, constraint, program limit
MISFIT = "22HF1"  # raised by our functions on adopted tables (adopt/project.sql)
LOCK_NOT_AVAILABLE = "55P03"
NOT_ALLOWED = "42501"
# The server ended the session, perhaps right after a commit, and the connection may not have noticed yet.
SESSION_ENDED = ("57P01", "57P02", "57P03", "57P05", "08006", "08003", "25P03")
READS = 100  # at most, to see whether the server is still there: somebody may send endless notifications
# The server ended the session because its user kept a transaction open for longer than a setting allows. (Matched by
# text: messages outside of an answer have no code.)
OUTSTAYED = ("idle-in-transaction timeout", "transaction timeout")
# Sessions are shared: another client of a pooler has prepared a statement of this name in ours, or we in another's.
OTHERS_SESSION = ("42P05", "26000")
# No connection is left. (Also matched by text: errors while connecting have no code.)
TOO_MANY = "53300"
CROWDED = ("too many clients", "too many connections", "connection slots are reserved", "no more connections allowed")
READ_ONLY = "25006"  # we are talking to a standby: after a failover a new connection finds the primary

OLDEST = 150000  # the oldest server we work with, as servers count: 15.0

# Our statements are written so that one plan serves all parameters; planning each time would cost more. And all use
# indexes: a plan made while the table was empty, and used for hours, would read the whole table for every job.
PLANS = {
    "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
}  # fmt: skip

# All settings in one round trip, if the session belongs to this server process (0: any process). Poolers refuse or drop
# startup options; so only a server that is known to be reached directly gets them, which saves the round trip.
SET = """select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as s (name, value)
          where %s::integer in (0, pg_backend_pid())"""
FREE_SESSION = 1.0  # seconds that a pooler has to find a free session, when we test how it uses them
ROUNDS = 3  # of that test: other clients of the pooler may come between two statements of ours

WAITS = """select wait_event_type, wait_event from pg_stat_activity where state = 'active' and wait_event is not null
    and (pid = {process} or usename = current_user and wait_event = 'SyncRep') order by pid = {process} desc limit 1"""
ASKING = 2  # seconds that the server has to say what one of its processes waits for

_direct: set[tuple[object, ...]] = set()  # URLs and hosts that connect to the server directly
_sessions_kept: set[str] = set()  # URLs of poolers that give each client a session of its own


def connect(
    settings: Settings, *, application: str = "holdfast", ours: bool = True, host: Mapping[str, str] | None = None,
    timeout: int = CONNECT_TIMEOUT,
) -> Connection:  # fmt: skip
    """Open a connection. The kernel notices half-open ones within half a lease. `ours`: for our statements, in a
    session that is set up for them; a handler's own statements run as its server, role and URL say. `host`: one of
    those that the URL names."""
    session = _session(settings, ours) if settings.prepare else {}
    connection = _open_directly(settings, application, ours, host, timeout, session)
    if connection is None:
        connection = _open(settings, application, ours, host, timeout)
        if session and not _set_up(connection, settings, session):
            connection = _open(settings, application, ours, host, timeout)
            if not _set_up(connection, settings, session):
                raise StoreUnavailable(f"{settings.shown_url} answers what was not asked", number="HF3401")
    if ours:
        connection.answers = _answers_of(settings)
        # JSON stays text; in binary format it is just that.
        connection.adapters.register_loader("json", ByteaBinaryLoader)
    if ours or not settings.prepare:
        connection.prepare_threshold = 0 if settings.prepare else None
    return connection


def _session(settings: Settings, ours: bool) -> dict[str, str]:
    """The settings of a session."""
    # The server must notice, too, if we vanish: until then it keeps our locks.
    alive = {f"tcp_{name}": str(value) for name, value in _keepalives(settings).items()}
    if not ours:
        return alive
    return {
        "timezone": "UTC",
        "default_transaction_isolation": "read committed",
        # A role's limit is meant for its own statements. Ours never wait long for a lock, and a claim that always times
        # out would stop the worker.
        "statement_timeout": "0",
        # Somebody's lock on one row must not stall a worker: it gives up after a while and continues without it.
        "lock_timeout": LOCK_TIMEOUT,
        # A worker frozen in a transaction holds locks that block its rescue, so the server ends the session.
        "idle_in_transaction_session_timeout": str(_patience(settings) * 1000),
        "holdfast.notifies": "on",  # so that no trigger does (migrations/0001_jobs.sql)
        **alive,
        **PLANS,
    }


def _patience(settings: Settings) -> int:
    return max(2, min(3600, int(settings.lease / 2)))


def _keepalives(settings: Settings) -> dict[str, int]:
    """Settings by which the kernel notices, within half a lease, that the other end is gone."""
    third = max(1, _patience(settings) // 3)
    return {
        "keepalives_idle": third, "keepalives_interval": third, "keepalives_count": 2,
        "user_timeout": _patience(settings) * 1000,
    }  # fmt: skip


def _open(
    settings: Settings, application: str, ours: bool, host: Mapping[str, str] | None = None,
    timeout: int = CONNECT_TIMEOUT, **further: str,
) -> Connection:  # fmt: skip
    options: dict[str, Any] = {"connect_timeout": timeout, "application_name": application, **_keepalives(settings)}
    options |= {**(host or {}), **further}
    options["tcp_user_timeout"] = options.pop("user_timeout")
    if ours:
        options["client_encoding"] = "UTF8"  # whatever database, role or environment say: JSON is UTF-8
    if "target_session_attrs" not in settings.url:
        options["target_session_attrs"] = "read-write"
    _check_url(settings)
    with translated(settings.shown_url):
        connection = Session.connect(settings.url, autocommit=True, **options)
    if connection.info.server_version < OLDEST:
        version = connection.info.parameter_status("server_version")
        connection.close()
        raise StoreError(
            f"{settings.shown_url} is PostgreSQL {version}: Holdfast needs {OLDEST // 10000} or newer", number="HF3410"
        )
    connection.host = host
    return connection


def _open_directly(
    settings: Settings, application: str, ours: bool, host: Mapping[str, str] | None, timeout: int,
    session: dict[str, str],
) -> Connection | None:  # fmt: skip
    """Open it with the settings as startup options. None: we don't know that the server is reached directly."""
    place = _place(settings, host)
    if not session or place not in _direct:
        return None
    given = str(conninfo_to_dict(settings.url).get("options") or os.environ.get("PGOPTIONS", ""))
    values = (f"-c {name}=" + value.replace(" ", r"\ ") for name, value in session.items())
    try:
        return _open(settings, application, ours, host, timeout, options=" ".join([given, *values]).strip())
    except StoreUnavailable as error:
        if "startup parameter" not in str(error):
            raise
        _direct.discard(place)  # a pooler has taken its place
        return None


def _place(settings: Settings, host: Mapping[str, str] | None) -> tuple[object, ...]:
    return settings.url, *(host or {}).items()


def _set_up(connection: Connection, settings: Settings, session: dict[str, str]) -> bool:
    """Give the session these settings, or close it. If a pooler's clients share sessions, other clients would get the
    settings, too, so that is refused. False: it was closed because it answered some other statement. PgBouncer 1.18
    does that now and then (`SET`, which it may have sent itself), and further answers could be anybody's."""
    given = [list(session), list(session.values())]
    try:
        with translated(settings.shown_url, connection):
            answer = connection.execute(SET, [*given, connection.info.backend_pid], prepare=False)
            if answer.description is None:
                connection.close()
                return False
            if answer.fetchall():
                _direct.add(_place(settings, connection.host))
            else:
                if shares_sessions(connection, settings):
                    connection.execute("begin", prepare=False)  # in statement mode, a pooler refuses this
                    connection.execute("rollback", prepare=False)
                    raise shared_sessions(settings.shown_url)
                connection.execute(SET, [*given, 0], prepare=False)
    except BaseException:
        connection.close()
        raise
    return True


def process_of(connection: Connection, timeout: float | None = None) -> int | None:
    """The server process that serves this connection now; None: there was none within so many seconds."""
    answer = _answer(connection, b"select pg_backend_pid()", timeout)
    return None if answer is None else int(answer.get_value(0, 0) or 0)


def _answer(connection: Connection, query: bytes, timeout: float | None) -> psycopg.pq.abc.PGresult | None:
    """None: there was no answer within so many seconds, and the connection can no longer be used."""
    pgconn = connection.pgconn
    pgconn.send_query(query)
    if not ready(pgconn.socket, timeout=timeout):
        return None
    answer = pgconn.get_result()
    while pgconn.get_result() is not None:
        pass
    if answer is None or answer.status != psycopg.pq.ExecStatus.TUPLES_OK:
        raise psycopg.OperationalError(pgconn.get_error_message("utf-8"))
    return answer


@lru_cache(maxsize=100)
def _answers_of(settings: Settings) -> Answers:
    return Answers(settings.shown_url, lambda connection: _waits_for(settings, connection))


def _waits_for(settings: Settings, connection: Connection) -> str | None:
    """What the server process of this connection waits for. Behind a pooler we don't know which process that is, but if
    a synchronous standby hangs, all of them wait for it."""
    query = WAITS.format(process=connection.info.backend_pid).encode()
    try:
        with closing(_open(settings, "holdfast", True, connection.host, ASKING)) as another:
            answer = _answer(another, query, ASKING)
    except (StoreError, psycopg.Error) as error:
        return f"nor does it answer a new connection ({error})"
    if answer is None:
        return "nor does it answer a new connection"
    if not answer.ntuples:
        return None
    kind, what = ((answer.get_value(0, column) or b"").decode() for column in range(2))
    if what == "SyncRep":
        return "it waits for a synchronous standby that does not confirm commits (see pg_stat_replication)"
    return f"it waits for {what} ({kind})"


def shares_sessions(connection: Connection, settings: Settings) -> bool:
    """Is this a pooler whose clients share sessions? In session mode each client has a server process of its own. In
    transaction mode two clients that take turns get whichever process is free, mostly the same."""
    if settings.url in _sessions_kept:
        return False
    first = process_of(connection)
    if first == connection.info.backend_pid:
        return False  # the server itself; a pooler invents the process id that it reports
    with closing(_open(settings, "holdfast", True, connection.host)) as another:
        served: dict[Connection, set[int | None]] = {connection: {first}, another: set()}
        # Twice each: a pooler that uses its sessions in rotation would otherwise always give each client the same one.
        for client in (another, another, connection, connection) * ROUNDS:
            process = process_of(client, FREE_SESSION)
            if process is None:
                # The pooler has no free session. If ours is still served, it has a session of its own.
                if client is another and process_of(connection, FREE_SESSION) == first:
                    break
                raise StoreUnavailable(f"{settings.shown_url} is a pooler that has no session free")
            served[client].add(process)
            if served[connection] == served[another] or max(map(len, served.values())) > 1:
                return True
    _sessions_kept.add(settings.url)
    return False


def shared_sessions(where: str) -> StoreError:
    return StoreError(
        f"{where} is a pooler whose clients share sessions (PgBouncer in transaction mode): set prepare = false and "
        "listen = false (HOLDFAST_PREPARE=0 HOLDFAST_LISTEN=0), or use its session mode",
        number="HF3403",
    )


def _check_url(settings: Settings) -> None:
    try:
        parts = conninfo_to_dict(settings.url)
        wrong = [port for port in str(parts.get("port") or "").split(",") if port and not port.isdigit()]
        why = f"{wrong[0]!r} is no port" if wrong else ""
        named = [host for host in str(parts.get("host") or "").split(",") if not host.startswith(("/", "@"))]
        if any("@" in host for host in named) or (wrong and "@" in settings.url):
            why = "write @ in a password as %40, / as %2F and : as %3A"
    except psycopg.ProgrammingError as error:
        why = str(error).strip()
    if why:
        # The driver quotes a part of the URL, which may be the password.
        told = (
            hiding(b"", (), settings.url)(why)
            if "%40" in why or "@" not in why
            else ("write postgresql://user@host:port/database")
        )
        raise BadSettings(f"{settings.shown_url!r} is not a PostgreSQL URL: {told}", number="HF1104")


def ready(descriptor: int, events: int = select.POLLIN, timeout: float | None = None) -> bool:
    """Wait until there is something to read or, if asked, room to write. (`select` does not take high descriptors.)"""
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


def usable(connection: Connection) -> bool:
    """Can it be used as if it were new? Never waits."""
    if connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        return False
    return hears(connection.pgconn)


def hears(pgconn: psycopg.pq.abc.PGconn, readable: select.poll | None = None) -> bool:
    """Is the server still there? If it was stopped, its message, or at least the end of the stream, is waiting in the
    socket."""
    if readable is None:
        readable = select.poll()
        readable.register(pgconn.socket, select.POLLIN)
    try:
        for _ in range(READS):
            if not readable.poll(0):
                break
            pgconn.consume_input()  # its last message first, then the end
    except psycopg.Error:
        return False
    return pgconn.status == psycopg.pq.ConnStatus.OK


def cut_off(connection: Connection, error: BaseException) -> psycopg.Error | None:
    """The driver's error beneath this one, if the connection ended with it: because of the server, the network or an
    administrator, not because of its user."""
    driver = driver_error(error)
    if driver is None or any(limit in str(driver) for limit in OUTSTAYED):
        return None
    if (driver.sqlstate or "") in SESSION_ENDED and not connection.closed:
        ready(connection.pgconn.socket, timeout=1.0)  # the end of the stream follows at once
    broken = connection.broken if connection.closed else not hears(connection.pgconn)
    return driver if broken else None


def driver_error(error: BaseException | None) -> psycopg.Error | None:
    """The driver's error, perhaps wrapped in another library's."""
    for _ in range(20):  # a bound, whatever the chain looks like
        if error is None or isinstance(error, psycopg.Error):
            return error
        error = getattr(error, "orig", None) or error.__cause__ or error.__context__  # `orig`: SQLAlchemy
    return None


class translated:
    """Translates driver errors raised in this block."""

    __slots__ = ("_connection", "_where")

    def __init__(self, where: str, connection: Connection | None = None) -> None:
        self._where = where
        self._connection = connection

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, psycopg.Error):
            broken = self._connection is not None and session_ended(self._connection, error)
            raise translate(self._where, error, broken=broken) from error


def session_ended(connection: Connection, error: psycopg.Error) -> bool:
    """Did the session end with this error? Then the outcome of a commit in flight is unknown."""
    if connection.closed or (error.sqlstate or "") in SESSION_ENDED:
        return True
    return not error.sqlstate and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def translate(where: str, error: psycopg.Error, *, broken: bool = False, away: bool = False) -> StoreError:
    """`broken`: the connection ended with it, perhaps after a commit; `away`: certainly before one."""
    code = error.sqlstate or ""
    said = scrub(str(error).strip().partition("\n")[0])
    if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn | pg.InvalidSchemaName):
        return SchemaOutdated(
            f"{where} has no Holdfast tables, or others than this version knows: run `holdfast migrate`",
            number="HF2102",
        )
    if isinstance(error, Unanswered):
        return OutcomeUnknown(f"{where} {said}")
    if code in OTHERS_SESSION:
        return shared_sessions(where)
    if "statement pooling mode" in said:
        return StoreError(
            f"{where} is a pooler in statement mode, which allows no transactions: use its session or transaction mode",
            number="HF3404",
        )
    if broken:
        return OutcomeUnknown(f"the connection to {where} broke: {said}")
    if away:
        return StoreUnavailable(f"the connection to {where} broke: {said}", number="HF3401")
    if code == TOO_MANY or (not code and any(words in str(error) for words in CROWDED)):
        return TooManyConnections(f"{where} has no connection left: {said}")
    if code == LOCK_NOT_AVAILABLE:
        return RowLocked(f"{where}: {said}")
    if code == NOT_ALLOWED:
        return RightMissing(f"{where} refused: {said}; {_remedy(said)}")
    if code[:2] in TRANSIENT_CLASSES or code == READ_ONLY:
        return StoreUnavailable(f"{where}: {said}")
    if not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"can't reach {where}: {said}", number="HF3401")
    if code == MISFIT:
        return ResultMisfit(said)
    if code[:2] in VALUE_CLASSES:
        return ValueRefused(f"{where} refused: {said}")
    return StoreError(f"{where} refused: {said}")


def _remedy(said: str) -> str:
    if "row-level security" in said:
        return "see which rows the policies of this table allow this user (row-level security)"
    if said.startswith("permission denied for database"):
        return "this user may make no schema: let one that may run `holdfast migrate` first"
    return "this user lacks a right: grant it one of the roles that `holdfast sql roles` makes, or run that again"
