"""Log lines that say which job they belong to, including those that a handler writes.

`JobFilter` adds the fields of `FIELDS` to every record that is written while a handler runs; it reads them from the
context that exists anyway, so an attempt costs no more. `TextFormatter` and `JsonFormatter` write the fields and hide
secrets. The command line uses `to_stderr`."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from holdfast import events
from holdfast.harmless import block, harmless
from holdfast.redact import hide_secrets, scrub
from holdfast.tasks.current import current_context, current_worker

FIELDS = ("job_id", "task", "queue", "attempt", "worker", "correlation_id")

# What every record has; anything else was passed as `extra`.
_KNOWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "holdfast", "taskName", *FIELDS}


class JobFilter(logging.Filter):
    """Gives each record the fields of its job, or None outside of jobs. Add it to a handler, not to a logger:
    `handler.addFilter(JobFilter())`. Then a format may use `%(job_id)s` and the others."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in job_fields().items():
            if not hasattr(record, name):  # keep an `extra` of the user's own
                setattr(record, name, value)
        return True


def job_fields() -> dict[str, Any]:
    """The job of the calling handler: id, task, queue, attempt, worker, correlation id; None outside of handlers."""
    context = current_context.get()
    if context is None:
        return dict.fromkeys(FIELDS)
    job = context.job
    values = (job.id, job.task, job.queue, context.attempt, current_worker.get() or None, job.correlation_id)
    return dict(zip(FIELDS, values, strict=True))


def hide(text: str) -> str:
    """The text without anything that looks like a secret, and without the secret arguments of the current job."""
    context = current_context.get()
    return scrub(text) if context is None else context.shown(text)


class TextFormatter(logging.Formatter):
    """One line of text for each record, ending with its job if it has one. The lines of a traceback below it are
    indented, so that none looks like another record."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        text = harmless(hide(self.formatMessage(record)))
        if hasattr(record, "holdfast") and record.exc_text:
            return text + "\n" + hide(record.exc_text)  # a traceback, already made harmless
        traced = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        for below in (traced, record.stack_info):
            if below:
                text += "\n" + block(hide(below))
        return text

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """In the host's own time zone, which is named: logs of several hosts are read side by side."""
        return datetime.fromtimestamp(record.created, UTC).astimezone().isoformat(" ", "milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        if getattr(record, "job_id", None) is None or hasattr(record, "holdfast"):
            return line  # our own texts name the job already
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
            same = (
                name == "job" and line.get("job_id", value) == value
            )  # else it is about another job than the current one
            line.setdefault("job_id" if same else name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(hide_secrets(line, hide=hide), default=lambda value: hide(repr(value)), skipkeys=True)


def to_stderr(verbose: int, form: str) -> None:
    """Log a command to stderr, the application's lines and ours, unless the application has set up logging itself; then
    its handlers write our lines too. `json` replaces them, because the user asked for it explicitly."""
    root = logging.getLogger()
    if form == "json" or not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(JobFilter())
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        configured = bool(root.handlers)
        root.handlers[:] = [handler]
        if not configured and verbose:
            root.setLevel(logging.INFO)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # we report broken connections ourselves
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.getLogger("holdfast").setLevel(level)
    # Somebody watches: a line for each job.
    events.job_log.setLevel(logging.INFO if verbose or sys.stderr.isatty() else logging.WARNING)
