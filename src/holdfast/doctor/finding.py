"""A finding of the doctor: code, level, what was found, what it means, what to do. All codes are listed here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.model.record import Record


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(Record, frozen=True):
    code: str
    level: Level
    found: str
    meaning: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A code: what it checks, what a problem means, and what to do about it unless the finding says so itself."""

    title: str
    meaning: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Beyond these values a check reports a problem."""

    skew: float = 2.0  # seconds between this host's clock and the database's
    transaction: float = 300.0  # seconds a transaction may be open
    slot_age: int = 1_000_000  # transactions by which a replication slot may lag
    dead_rows: int = 50_000  # dead rows, if they are also more than half of the live ones
    free_connections: int = 10
    log: int = 64 * 1024 * 1024  # bytes of SQLite's write-ahead log
    turn: float = 1.0  # seconds for which one writer may keep others waiting
    disk_low: int = 1024**3  # bytes free
    disk_full: int = 100 * 1024**2
    unsettled: float = 60.0  # seconds that a change of an adopted row may wait to be taken up
    owed: float = 300.0  # seconds that an outcome may wait to be written to its row


CODES: dict[str, Entry] = {
    "HF4001": Entry(
        "the database answers",
        "Nothing can be enqueued or run while the database can't be opened.",
        "Check the URL (--url, HOLDFAST_URL), that the server runs, and that this user may use it.",
    ),
    "HF4002": Entry(
        "the SQLite library",
        "This SQLite has the WAL-reset bug (3.7.0 to 3.51.2): a checkpoint by one connection, racing with a commit of "
        "another, can corrupt the file. Holdfast's own connections never checkpoint that way; connections that your "
        "code opens on the same file may.",
        "Use a Python with SQLite 3.51.3 or newer, or run `pragma wal_autocheckpoint = 0` on your own connections.",
    ),
    "HF4003": Entry(
        "the PostgreSQL server's version",
        "Holdfast needs PostgreSQL 15 or newer.",
        "Upgrade the server.",
    ),
    "HF4004": Entry(
        "the schema's version",
        "Workers refuse to start where schema and code don't fit together.",
        "Run `holdfast migrate`.",
    ),
    "HF4101": Entry(
        "nothing of our tables is missing",
        "Something was dropped that the code relies on: statements fail, or read whole tables, or what must not be is "
        "no longer refused.",
        "Put it back as the migrations make it (`holdfast sql install` prints them).",
    ),
    "HF4102": Entry(
        "nothing of our tables was altered",
        "Something differs from what this version makes: what the code relies on may not hold.",
        "Put it back as the migrations make it (`holdfast sql install` prints them).",
    ),
    "HF4103": Entry(
        "nothing was added to our tables",
        "What others add to our tables costs every claim and completion; an index on what success changes, the most.",
        "Drop it, or keep it in a table of your own that refers to the job's id.",
    ),
    "HF4201": Entry(
        "every queue with due jobs is served",
        "Jobs of this queue wait until a worker serves it.",
        "Start a worker for it: `holdfast worker APP -q QUEUE`.",
    ),
    "HF4202": Entry(
        "every task with due jobs is known",
        "Workers serve the queue, but none has a handler of this name: the jobs wait, they are not dropped.",
        "Deploy the code that has it, or give the renamed task `aliases=[…]`.",
    ),
    "HF4203": Entry(
        "registered workers are heard of",
        "A worker that ended without a word, or that waits for the database (its log tells). What it held is rescued; "
        "its row is forgotten after a while.",
        "If it should run: look at its host and start it again.",
    ),
    "HF4204": Entry(
        "leases that ran out are rescued",
        "Jobs of a silent worker wait to be given back. Any worker's watchdog does that, one lease after it started.",
        "Start a worker. If one runs: look at its log, it may not get at the rows.",
    ),
    "HF4205": Entry(
        "this host's clock and the database's",
        "Only the database's clock decides when jobs are due and leases end, so nothing breaks; but times in logs and "
        "`run_at` reckoned by this host's clock are off by as much.",
        "Let both hosts keep time by NTP.",
    ),
    "HF4206": Entry(
        "workers of this host see each other's death",
        "A worker that this user starts here and its neighbours can't see whether the other lives: jobs of one that "
        "was killed wait until their lease ends.",
        "Remove what is in the way. On PostgreSQL XDG_RUNTIME_DIR can name another place. If the workers run as "
        "another user, run the doctor as that user.",
    ),
    "HF4207": Entry(
        "nothing that is due waits for a pause",
        "Jobs of a paused queue or task wait until someone resumes it, or until the pause ends.",
        "If the reason is gone, resume it.",
    ),
    "HF4208": Entry(
        "no alert stands",
        "Workers found something beyond its threshold (docs/metrics.md), and it still is.",
        "Each alert says what to do. `holdfast config` shows the thresholds, `alert_…`.",
    ),
    "HF4301": Entry(
        "nothing pins the vacuum horizon",
        "As long as it stays, no vacuum removes the dead rows that claims and completions leave: tables grow, and "
        "claims slow down.",
        "End the transaction where it is open.",
    ),
    "HF4302": Entry(
        "dead rows",
        "Vacuum does not keep up with this table: claims read through dead rows.",
        "Look for a pinned horizon (HF4301), then `vacuum` the table.",
    ),
    "HF4303": Entry(
        "autovacuum",
        "Without autovacuum dead rows stay, and statistics are never refreshed.",
        "Switch it on.",
    ),
    "HF4304": Entry(
        "connections",
        "A worker that can't connect runs nothing, and can't renew what it holds.",
        "Raise the limit, run fewer and larger workers, or use a pooler (settings prepare=false, listen=false).",
    ),
    "HF4305": Entry(
        "pooler",
        "Behind a pooler in transaction mode no notifications arrive: workers try to listen in vain, and poll.",
        "Set listen=false (HOLDFAST_LISTEN=0), use its session mode, or connect workers to the server directly.",
    ),
    "HF4306": Entry(
        "one server takes writes",
        "An old primary that came back takes jobs that nobody else sees, and knows nothing of what was claimed since.",
        "Stop the server with the lower timeline, and make it a standby of the other.",
    ),
    "HF4401": Entry(
        "the file is on a local disk",
        "SQLite can't lock safely on a network file system: the file may be corrupted.",
        "Put the file on a local disk, or use PostgreSQL.",
    ),
    "HF4402": Entry(
        "the write-ahead log",
        "Someone reads for very long, and the log can't start anew: it grows, reads slow down, the disk fills.",
        "End the long read (a forgotten cursor, a backup, an open shell); the next writer then shortens the log.",
    ),
    "HF4403": Entry(
        "the journal mode",
        "Outside of WAL mode readers and writers block each other.",
        "Run `holdfast migrate`; it switches WAL on.",
    ),
    "HF4404": Entry(
        "the synchronous setting",
        "A power cut may forget jobs that were accepted.",
        "Set synchronous=full (HOLDFAST_SYNCHRONOUS=full).",
    ),
    "HF4405": Entry(
        "disk space",
        "A full disk stops all writing: nothing accepted is lost, but nothing more is accepted or recorded.",
        "Free some space.",
    ),
    "HF4406": Entry(
        "writers take turns",
        "SQLite has one writer at a time: as long as this transaction is open, nothing is enqueued, claimed or "
        "recorded.",
        "Make the transaction shorter: fetch and compute before it begins. If its process is stopped (SIGSTOP, a "
        "debugger), let it go on or kill it; the file is then free at once.",
    ),
    "HF4501": Entry(
        "adopted tables are as their mappings say",
        "Something of this table, its triggers or the rights to it differs from what the mapping needs. After an error "
        "workers leave the table alone; its rows wait, and other jobs go on.",
        "Mend it as the finding says, or adopt the table again: `holdfast adopt TABLE`.",
    ),
    "HF4502": Entry(
        "no adopted table is suspended",
        "Nothing of a suspended table is claimed, and nothing is written to it. What ends meanwhile is written later.",
        "Work it again: `holdfast adopt TABLE --resume`.",
    ),
    "HF4503": Entry(
        "rows of adopted tables can be worked",
        "Rows like these wait or run for ever, or are no jobs at all, although they look like it.",
        "Correct them in the table, or the mapping.",
    ),
    "HF4504": Entry(
        "rows of adopted tables and their jobs are in step",
        "Workers take up what others write to the table within a moment, and write outcomes at once. Somebody keeps "
        "them from it: a lock that is held for long, a policy that hides rows, a table that was altered; or no worker "
        "runs.",
        "Start a worker. If one runs: look at its log, and for a transaction that stays open.",
    ),
    "HF4505": Entry(
        "application and installed mapping agree",
        "Workers refuse a table that their code maps otherwise than it is installed.",
        "Install the application's mapping: `holdfast adopt TABLE --app APP`.",
    ),
    "HF4601": Entry(
        "the application's own checks",
        "A function of the application (`@hf.doctor_check`) looks at what only the application knows of, and finds it "
        "wrong.",
        "Ask whoever wrote the check.",
    ),
}  # fmt: skip


def ok(code: str, found: str) -> Finding:
    return Finding(code, Level.OK, found)


def warning(code: str, found: str, fix: str = "") -> Finding:
    return Finding(code, Level.WARNING, found, CODES[code].meaning, fix or CODES[code].fix)


def error(code: str, found: str, fix: str = "") -> Finding:
    return Finding(code, Level.ERROR, found, CODES[code].meaning, fix or CODES[code].fix)
