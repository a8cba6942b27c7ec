"""`stack`: where a running handler is right now."""

from __future__ import annotations

import click

from holdfast.cli.base import DURATION, cli, database_option, open_app, output_option, print_data, say
from holdfast.harmless import harmless
from holdfast.operations import STACK_TIMEOUT


@cli.command()
@click.argument("job")
@click.option("--timeout", type=DURATION, default=STACK_TIMEOUT, show_default="10s", help="How long to wait for it.")
@output_option
@database_option
def stack(job: str, timeout: float, output: str, url: str | None) -> None:
    """Show where the handler of a running JOB is: its Python stack, as its worker reports it.

    \b
    Examples:
      holdfast stack 42
      holdfast stack 42 --timeout 30 -o json
    """
    found = open_app(url).stack(job, timeout=timeout)
    if output != "table":
        print_data([found.as_dict()], output, one=True)
        return
    thread = f", thread {found.thread}" if found.thread else ""
    say(f"job {found.job} ({found.task}), attempt {found.attempt}, at {found.taken_at:%Y-%m-%d %H:%M:%S} UTC")
    say(f"in worker {found.worker}, pid {found.pid}{thread}:")
    click.echo("\n" + harmless(found.text, lines=True), nl=False)
