"""Connections to PostgreSQL, and the one place where its errors become ours."""

from __future__ import annotations

import select
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import ByteaBinaryLoader

from holdfast.errors import (
    BadSettings,
    OutcomeUnknown,
    RowLocked,
    SchemaOutdated,
    StoreError,
    StoreUnavailable,
    ValueRefused,
)
from holdfast.redact import scrub
from holdfast.settings import Settings

Connection = psycopg.Connection[tuple[Any, ...]]

TRANSIENT_CLASSES = ("08", "40", "53", "57")  # connection, rollback, resources, operator intervention
LOCK_TIMEOUT = "2s"  # a foreign lock on one row must not stall a worker
VALUE_CLASSES = ("22", "23", "54")  # data exception, constraint, program limit
LOCK_NOT_AVAILABLE = "55P03"
# The server ended the session, perhaps right after a commit, and the connection may not have noticed yet.
SESSION_ENDED = ("57P01", "57P02", "57P03", "57P05", "08006", "08003", "25P03")
READ_ONLY = "25006"  # we are talking to a standby: after a failover a new connection finds the primary

# Our statements are written so that one plan serves all parameters; planning anew would cost more. And all go by
# indexes: a plan made while the table was empty, and used for hours, would read all of it for every job.
PLANS = {
    "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
}  # fmt: skip


def connect(settings: Settings, *, application: str = "holdfast") -> Connection:
    """Deafness and half-open connections are noticed by the kernel within half a lease."""
    patience = max(2, min(3600, int(settings.lease / 2)))
    options: dict[str, Any] = {
        "connect_timeout": 10,
        "keepalives_idle": max(1, patience // 3),
        "keepalives_interval": max(1, patience // 3),
        "keepalives_count": 2,
        "tcp_user_timeout": patience * 1000,
        "application_name": application,
        "client_encoding": "UTF8",  # whatever database, role or environment say: JSON is that
    }
    if "target_session_attrs" not in settings.url:
        options["target_session_attrs"] = "read-write"
    if settings.prepare:
        session = {
            "timezone": "UTC",
            "default_transaction_isolation": r"read\ committed",
            # What a role allows a statement is meant for its own: ours wait for no lock for long, and a claim that is
            # always stopped would stop its worker.
            "statement_timeout": "0",
            # A foreign lock on one row must not stall a worker: it gives up after a while and goes on without it.
            "lock_timeout": LOCK_TIMEOUT,
            # A worker frozen in the middle of a transaction holds locks that no rescue gets past: the server ends it.
            "idle_in_transaction_session_timeout": patience * 1000,
            **PLANS,
        }
        options["options"] = " ".join(f"-c {name}={value}" for name, value in session.items())
    _check_url(settings)
    with translated(settings.shown_url):
        connection = psycopg.connect(settings.url, autocommit=True, **options)
    connection.prepare_threshold = 0 if settings.prepare else None
    connection.adapters.register_loader("json", ByteaBinaryLoader)  # JSON stays text; in binary format it is just that
    return connection


def _check_url(settings: Settings) -> None:
    try:
        ports = str(conninfo_to_dict(settings.url).get("port") or "")
        wrong = [port for port in ports.split(",") if port and not port.isdigit()]
        why = f"{wrong[0]!r} is no port" if wrong else ""
    except psycopg.ProgrammingError as error:
        why = str(error).strip()
    if why:
        # The driver may quote the whole URL, password and all.
        raise BadSettings(
            f"{settings.shown_url!r} is not a PostgreSQL URL: "
            + ("write postgresql://user@host:port/database" if "@" in why else scrub(why)),
            number="HF1104",
        )


def ready(descriptor: int, events: int = select.POLLIN, timeout: float | None = None) -> bool:
    """Wait until there is something to read or, if asked for, room to write. (`select` refuses high descriptors.)"""
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


def usable(connection: Connection) -> bool:
    return not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


class translated:
    """Meanwhile the driver's errors are told as ours."""

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
    """Is this the end of the session? Then nobody knows what became of a commit under way."""
    if connection.closed or (error.sqlstate or "") in SESSION_ENDED:
        return True
    return not error.sqlstate and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def translate(where: str, error: psycopg.Error, *, broken: bool = False) -> StoreError:
    code = error.sqlstate or ""
    said = scrub(str(error).strip().partition("\n")[0])
    if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn | pg.InvalidSchemaName):
        return SchemaOutdated(
            f"{where} has no Holdfast tables, or others than this version knows: run `holdfast migrate`",
            number="HF2102",
        )
    if broken:
        return OutcomeUnknown(f"the connection to {where} broke: {said}")
    if code == LOCK_NOT_AVAILABLE:
        return RowLocked(f"{where}: {said}")
    if code[:2] in TRANSIENT_CLASSES or code == READ_ONLY:
        return StoreUnavailable(f"{where}: {said}")
    if not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"can't reach {where}: {said}", number="HF3401")
    if code[:2] in VALUE_CLASSES:
        return ValueRefused(f"{where} refused: {said}")
    return StoreError(f"{where} refused: {said}")
