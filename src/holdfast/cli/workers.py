"""`workers`: the workers of this database."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import asdict

from holdfast.cli.base import ago, cli, open_app, output_option, plain, print_data, print_table, url_option
from holdfast.model.job import running_by_worker


@cli.command()
@output_option
@url_option
def workers(output: str, url: str | None) -> None:
    """List the workers of this database: what they serve, how busy they are, when they were last seen.

    \b
    Examples:
      holdfast workers
      holdfast workers -o json
    """
    store = open_app(url).store
    running = running_by_worker(store.reads.depths())
    rows = [
        plain(asdict(worker)) | {"tasks": sorted(worker.tasks), "running": running.get(worker.id, 0)}
        for worker in store.workers.all()
    ]
    if output != "table":
        print_data(rows, output)
        return
    print_table(
        ("worker", "host", "pid", "running", "slots", "queues", "tasks", "started", "seen"),
        [
            (
                row["id"], row["host"], row["pid"], row["running"], row["slots"], ", ".join(row["queues"] or ["all"]),
                ", ".join(row["tasks"]), ago(datetime.fromisoformat(row["started_at"])),
                ago(datetime.fromisoformat(row["seen_at"])),
            )
            for row in rows
        ],
    )  # fmt: skip
