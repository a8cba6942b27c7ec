"""`demo`: jobs that survive a killed worker."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.base import cli


@cli.command()
@click.option("--jobs", type=click.IntRange(100), default=3000, show_default=True, help="How many jobs, about.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the database at this path, to look around in.")
@click.option("--ui", is_flag=True, help="Open a dashboard on a live load, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Of the dashboard.")
def demo(jobs: int, keep: Path | None, ui: bool, port: int) -> None:
    """Watch a few thousand jobs survive a killed worker. Exit status 1 if anything was lost.

    With --ui there is no end: jobs keep coming, and you kill the workers, in the dashboard.

    \b
    Examples:
      holdfast demo
      holdfast demo --jobs 500 --keep demo.db
    """
    if ui:
        from holdfast.demo import live

        return live.run(keep, port)
    from holdfast.demo.show import run

    raise SystemExit(run(jobs, keep))
