"""`why`: the reasons why a job waits, or what became of it."""

from __future__ import annotations

import click

from holdfast.cli.base import (
    cli,
    database_option,
    open_app,
    output_option,
    print_data,
    print_table,
    say,
    talk,
    to_json,
)
from holdfast.errors import BadSettings
from holdfast.model.text import plural
from holdfast.model.why import QueueWhy, Reason, Why

NOT_FOUND = 3  # the same for every command that does not find its job


@cli.command()
@click.argument("job", required=False)
@click.option("--queue", help="Instead of one job: what the jobs of this queue wait for, counted.")
@output_option
@database_option
@click.pass_context
def why(ctx: click.Context, job: str | None, queue: str | None, output: str, url: str | None) -> None:
    """Explain why JOB does not run, or what became of it: every reason that applies, in order.

    \b
    Examples:
      holdfast why 42
      holdfast why --queue mail
    """
    if (job is None) == (queue is None):
        raise BadSettings("name a job (holdfast why 42) or a queue (holdfast why --queue mail)")
    app = open_app(url)
    if queue is not None:
        show_queue(app.why_queue(queue), output)
        return
    assert job is not None
    found = app.why(job)
    show_job(found, output)
    if found[0].code is Why.NOT_FOUND:
        ctx.exit(NOT_FOUND)


def show_job(found: list[Reason], output: str) -> None:
    if output != "table":
        print_data([reason.as_dict() for reason in found], output)
        return
    for reason in found:
        say(f"{reason.code:<17} {reason.text}")


def show_queue(found: QueueWhy, output: str) -> None:
    if output == "json":
        click.echo(to_json(found.as_dict()))
        return
    if output == "jsonl":
        print_data([count.as_dict() for count in found.reasons], output)
        return
    many = f"{found.looked_at:,}" if found.complete else f"the first {found.looked_at:,}"
    talk(
        f"looked at {many} unfinished {plural('job', found.looked_at)} of queue {found.queue} "
        f"(paused and running ones: among the newest "
        f"{found.window:,} jobs)"
    )
    print_table(
        ("reason", "jobs", "for example", ""),
        [(count.code, f"{count.jobs:,}", f"job {count.example}", count.text) for count in found.reasons],
    )
