"""`demo`: jobs that survive a killed worker."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.base import cli


@cli.command()
@click.option("--jobs", type=click.IntRange(100), default=3000, show_default=True, help="How many jobs, about.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the database at this path, to look around in.")
def demo(jobs: int, keep: Path | None) -> None:
    """Watch a few thousand jobs survive a killed worker. Exit status 1 if anything was lost.

    \b
    Examples:
      holdfast demo
      holdfast demo --jobs 500 --keep demo.db
    """
    from holdfast.demo.show import run

    raise SystemExit(run(jobs, keep))
