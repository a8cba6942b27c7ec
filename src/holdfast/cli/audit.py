"""`audit`: what operators did, and who they were."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.base import (
    ago,
    cli,
    database_option,
    open_app,
    output_option,
    print_data,
    print_table,
    talk,
    to_json,
)
from holdfast.model.audit import VERBS, AuditRecord
from holdfast.model.filter import parse, quoted


@cli.command()
@click.option("--by", help="Only what this operator did.")
@click.option("--verb", type=click.Choice(VERBS), metavar="VERB", help="Only calls of this verb: retry, pause_queue, …")
@click.option("--what", help="Only calls on a name or filter, or with parameters, that contain this text.")
@click.option("--job", metavar="ID", help="Only calls on this job: alone, or as one of many.")
@click.option("--since", help="Only since then: 30m, 1h, 7d, 2030-01-31.")
@click.option("--before", metavar="ID", help="Only what is older than this: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@output_option
@database_option
def audit(limit: int, output: str, url: str | None, since: str | None, before: str | None, **wanted: Any) -> None:
    """List what operators did, newest first: when, who, what, why, and the outcome.

    \b
    Examples:
      holdfast audit --by ops --since 1h
      holdfast audit --job 42 -o jsonl
    """
    wanted["since"] = None if since is None else parse(f"since:{quoted(since)}").since
    app = open_app(url)
    found = app.audit(before=before, limit=limit, **wanted)
    if output != "table":
        print_data([record.as_dict() for record in found], output)
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
    if len(found) == limit and app.audit(before=found[-1].id, limit=1, **wanted):
        talk(f"there are more: --before {found[-1].id}, or -n for a longer list")


def outcome(record: AuditRecord) -> str:
    """`12 changed, 1 refused`; of a call that did not get to its end, how far it got."""
    counts = {"changed": record.changed, "asked": record.asked, "refused": record.refused}
    words = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing changed"
    return words if record.ended_at else f"unfinished: {words}"
