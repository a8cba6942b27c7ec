"""`demo` and `bench`: show, measure."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.base import cli, to_json


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


@cli.command()
@click.option("--jobs", type=click.IntRange(100), default=20_000, show_default=True, help="Jobs in a drain.")
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "both"]), default="both", show_default=True)
@click.option("--url", help="A PostgreSQL to measure, in a schema of its own. Default: a private one.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Readings of each figure.")
@click.option("--steady", type=click.FloatRange(1), default=10.0, show_default=True, help="Seconds of steady load.")
@click.option(
    "--idle", type=click.FloatRange(1), default=30.0, show_default=True, help="Seconds an idle worker is watched."
)
@click.option("--long", is_flag=True, help="Also what takes long: million-row tables, memory, a pinned snapshot.")
@click.option("--crowd", type=click.IntRange(1000), default=1_000_000, show_default=True, help="Rows for --long.")
@click.option(
    "--pinned-seconds", type=click.FloatRange(2), default=600.0, show_default=True,
    help="How long a snapshot is pinned, for --long.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of a table.")
def bench(
    jobs: int, engine: str, url: str | None, rounds: int, steady: float, idle: float, long: bool, crowd: int,
    pinned_seconds: float, as_json: bool,
) -> None:  # fmt: skip
    """Measure this machine: the raw limits of the database, Holdfast, and the ratios between them.

    \b
    Examples:
      holdfast bench --engine sqlite --jobs 2000
      holdfast bench --json
    """
    from holdfast.bench.report import report
    from holdfast.bench.run import measure
    from holdfast.bench.sizes import Sizes

    sizes = Sizes(
        jobs=jobs, rounds=rounds, steady_seconds=steady, idle_seconds=idle, long=long, crowd=crowd,
        pinned_seconds=pinned_seconds,
    )  # fmt: skip
    figures = measure(("sqlite", "postgres") if engine == "both" else (engine,), url=url, sizes=sizes)
    click.echo(to_json(figures) if as_json else report(figures))
