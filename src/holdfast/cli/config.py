"""`config` and `completion`: the settings and their sources, and completion for shells."""

from __future__ import annotations

import os
from dataclasses import asdict

import click
from click.shell_completion import get_completion_class

from holdfast.app import REAL_DATABASE
from holdfast.app_loader import database_at, looked_at
from holdfast.cli.base import app_argument, cli, output_option, print_data, print_table, talk, url_option
from holdfast.errors import HoldfastError
from holdfast.model.presets import PRESETS
from holdfast.model.text import did_you_mean
from holdfast.settings import dotted, flattened, misspelled, redact


@cli.command()
@app_argument
@click.option("--presets", is_flag=True, help="Show the presets instead: the settings and task options of each.")
@output_option
@url_option
def config(app: str | None, presets: bool, output: str, url: str | None) -> None:
    """Show every setting and the source of its value: argument, environment, file, preset or default. Passwords are
    hidden.

    If the application can't be found, shows the settings outside of it and exits with an error.

    \b
    Examples:
      holdfast config app:hf -o json
      holdfast config --presets
    """
    if presets:
        _show_presets(output)
        return
    trouble: HoldfastError | None = None
    try:
        configured = looked_at(app, url)
    except HoldfastError as error:
        trouble, configured = error, database_at(url)
    values = {dotted(*key): value for key, value in flattened(asdict(configured.settings)).items()}
    rows = [
        {"name": name, "value": redact(value) if name == "url" else value, "source": configured.sources[name]}
        for name, value in values.items()
    ]
    told = {REAL_DATABASE, *misspelled(os.environ)}  # the latter by every command
    for name in sorted(os.environ):
        setting = name.removeprefix("HOLDFAST_").lower()
        if name.startswith("HOLDFAST_") and setting not in configured.sources and name not in told:
            talk(f"{name} is no setting, and changes nothing")
    if output == "table":
        print_table(("setting", "value", "from"), [tuple(row.values()) for row in rows])
    else:
        print_data(rows, output)
    declared = {task._defaults.queue for task in configured.tasks.values()}
    for queue in sorted(configured.settings.queues.keys() - declared) if declared else ():
        talk(f"no task has queue {queue!r}, which the settings name{did_you_mean(queue, declared)}")
    if trouble is not None:
        talk("these are the settings without the application's own:")
        raise trouble


def _show_presets(output: str) -> None:
    chosen = {name: {**preset.settings, **preset.task} for name, preset in PRESETS.items()}
    if output != "table":
        print_data([{"name": name, **values} for name, values in chosen.items()], output)
        return
    settings = list(dict.fromkeys(setting for values in chosen.values() for setting in values))
    rows = [(setting, *(values.get(setting, "-") for values in chosen.values())) for setting in settings]
    print_table(("setting", *chosen), rows)


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
