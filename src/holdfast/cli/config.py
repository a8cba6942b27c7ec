"""`config` and `completion`: the settings and their sources, and completion for shells."""

from __future__ import annotations

import os
from dataclasses import asdict
from difflib import get_close_matches

import click
from click.shell_completion import get_completion_class

from holdfast.app import REAL_DATABASE
from holdfast.app_loader import database_at, looked_at
from holdfast.cli.base import app_argument, cli, output_option, print_data, print_table, talk, url_option
from holdfast.errors import HoldfastError
from holdfast.settings import redact


@cli.command()
@app_argument
@output_option
@url_option
def config(app: str | None, output: str, url: str | None) -> None:
    """Show every setting and the source of its value: argument, environment, file or default. Passwords are hidden.

    If the application can't be found, shows the settings outside of it and exits with an error.

    \b
    Examples:
      holdfast config
      holdfast config app:hf -o json
    """
    trouble: HoldfastError | None = None
    try:
        configured = looked_at(app, url)
    except HoldfastError as error:
        trouble, configured = error, database_at(url)
    rows = [
        {"name": name, "value": redact(value) if name == "url" else value, "source": configured.sources[name]}
        for name, value in asdict(configured.settings).items()
    ]
    for name in sorted(os.environ):
        setting = name.removeprefix("HOLDFAST_").lower()
        if name.startswith("HOLDFAST_") and setting not in configured.sources and name != REAL_DATABASE:
            near = get_close_matches(setting, configured.sources, 1)
            talk(f"{name} is no setting" + (f"; perhaps HOLDFAST_{near[0].upper()}?" if near else ""))
    if output == "table":
        print_table(("setting", "value", "from"), [tuple(row.values()) for row in rows])
    else:
        print_data(rows, output)
    if trouble is not None:
        talk("these are the settings without the application's own:")
        raise trouble


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a SHELL complete our commands.

    \b
    Examples:
      holdfast completion bash
      holdfast completion fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
