"""Log lines that say which job they belong to, also the ones a handler writes itself.

`JobFilter` adds the fields of `FIELDS` to every record written while a handler runs (its context is at hand anyway: an
attempt costs nothing more for it). `TextFormatter` and `JsonFormatter` write them and hide secrets. `to_stderr` is what
the command line uses."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from holdfast.harmless import block, harmless
from holdfast.redact import hide_secrets, scrub
from holdfast.tasks.current import current_context, current_worker

FIELDS = ("job_id", "task", "queue", "attempt", "worker", "correlation_id")

# What every record has; the rest was given as `extra`.
_KNOWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "holdfast", "taskName", *FIELDS}


class JobFilter(logging.Filter):
    """Gives each record the fields of the job it was written for; None outside of one. For a handler, not a logger:
    `handler.addFilter(JobFilter())`, then `%(job_id)s` and the others can stand in a format."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in job_fields().items():
            if not hasattr(record, name):  # an `extra` of the user's own stays
                setattr(record, name, value)
        return True


def job_fields() -> dict[str, Any]:
    """The job that the caller runs for: id, task, queue, attempt, worker, correlation id; None outside of a handler."""
    context = current_context.get()
    if context is None:
        return dict.fromkeys(FIELDS)
    job = context.job
    values = (job.id, job.task, job.queue, context.attempt, current_worker.get() or None, job.correlation_id)
    return dict(zip(FIELDS, values, strict=True))


def hide(text: str) -> str:
    """The text without what looks like a secret, nor the secret arguments of the job that the caller runs for."""
    context = current_context.get()
    return scrub(text) if context is None else context.shown(text)


class TextFormatter(logging.Formatter):
    """A line for people; lines of a job end in what job it was. Whatever it says, it is one line: those of a traceback
    below it are indented, so that none looks like another record."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        text = harmless(hide(self.formatMessage(record)))
        traced = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        for below in (traced, record.stack_info):
            if below:
                text += "\n" + block(hide(below))
        return text

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        if getattr(record, "job_id", None) is None or hasattr(record, "holdfast"):
            return line  # our own texts name the job themselves
        told = {name: getattr(record, name, None) for name in FIELDS if name != "queue"}
        return line + " [" + " ".join(f"{name}={value}" for name, value in told.items() if value is not None) + "]"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the job's fields, those of the event or of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        line |= {name: value for name, value in vars(record).items() if name not in _KNOWN}
        for name, value in getattr(record, "holdfast", {}).items():
            same = name == "job" and line.get("job_id", value) == value  # else it is about another job than it runs in
            line.setdefault("job_id" if same else name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(hide_secrets(line, hide=hide), default=lambda value: hide(repr(value)), skipkeys=True)


def to_stderr(verbose: int, form: str) -> None:
    """The log of a command: the application's lines and ours, on stderr, unless the application has set up logging
    itself; then its handlers write ours, too. `json` is asked for by name, so it takes their place."""
    root = logging.getLogger()
    if form == "json" or not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(JobFilter())
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        configured = bool(root.handlers)
        root.handlers[:] = [handler]
        if not configured and verbose:
            root.setLevel(logging.INFO)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # what it notices of a broken connection, we tell ourselves
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.getLogger("holdfast").setLevel(level)
