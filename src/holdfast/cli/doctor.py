"""`doctor`: find problems of a database, also to gate a deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.app_loader import looked_at
from holdfast.cli.base import app_argument, cli, output_option, print_data, say, talk, url_option

if TYPE_CHECKING:
    from holdfast.doctor import Finding


@cli.command()
@app_argument
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@output_option
@url_option
@click.pass_context
def doctor(ctx: click.Context, app: str | None, strict: bool, output: str, url: str | None) -> None:
    """Find what is wrong, or soon will be, with the database of APP or the one at --url. Changes nothing.

    Exit status 1 if there is an error, so that it can gate a deployment.

    \b
    Examples:
      holdfast doctor app:hf
      holdfast doctor --url sqlite:///jobs.db --strict -o json
    """
    from holdfast.doctor import Level  # only this command needs it

    found = looked_at(app, url).doctor()
    if output == "table":
        show(found)
    else:
        print_data([finding.as_dict() for finding in found], output)
    wrong = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    ctx.exit(1 if any(finding.level in wrong for finding in found) else 0)


def show(found: list[Finding]) -> None:
    from holdfast.doctor import Level

    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}
    for finding in found:
        level = click.style(f"{finding.level:<8}", fg=colours[finding.level])
        say(f" {finding.code}  {finding.found}", after=level)
        for name, text in (("meaning", finding.meaning), ("fix", finding.fix)):
            if text:
                say(f"{'':<17}{name}: {text}")
    counts = {level: sum(finding.level is level for finding in found) for level in Level}
    talk(f"{counts[Level.ERROR]} errors, {counts[Level.WARNING]} warnings, {counts[Level.OK]} ok")
