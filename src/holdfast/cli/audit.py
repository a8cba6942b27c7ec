"""`audit`: what operators did, and who they were."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from holdfast.cli.base import (
    ago,
    cli,
    database_option,
    open_app,
    output_option,
    plain,
    print_data,
    print_table,
    talk,
    to_json,
)
from holdfast.model.audit import AuditRecord


@cli.command()
@click.option("--before", metavar="ID", help="Only what is older than this: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@output_option
@database_option
def audit(before: str | None, limit: int, output: str, url: str | None) -> None:
    """List what operators did, newest first: when, who, what, why, and the outcome.

    \b
    Examples:
      holdfast audit
      holdfast audit -n 100 -o jsonl
    """
    app = open_app(url)
    found = app.audit(before=before, limit=limit)
    if output != "table":
        print_data([plain(asdict(record)) for record in found], output)
    else:
        print_table(
            ("id", "when", "by", "verb", "what", "parameters", "outcome", "reason"),
            [
                (
                    record.id, f"{record.at:%Y-%m-%d %H:%M:%S}Z ({ago(record.at)})", record.by, record.verb,
                    record.what, to_json(record.parameters) if record.parameters else "", outcome(record),
                    record.reason,
                )
                for record in found
            ],
        )  # fmt: skip
    if len(found) == limit and app.audit(before=found[-1].id, limit=1):
        talk(f"there are more: --before {found[-1].id}, or -n for a longer list")


def outcome(record: AuditRecord) -> str:
    """`12 changed, 1 refused`; of a call that did not get to its end, how far it got."""
    counts = {"changed": record.changed, "asked": record.asked, "refused": record.refused}
    words = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing changed"
    return words if record.ended_at else f"unfinished: {words}"
