"""`python -m bench`: measure this machine and print the figures."""

from __future__ import annotations

import json

import click

from bench.report import report
from bench.run import measure
from bench.sizes import Sizes


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--jobs", type=click.IntRange(100), default=20_000, show_default=True, help="Jobs in a drain.")
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "both"]), default="both", show_default=True)
@click.option("--url", help="A PostgreSQL to measure, in a schema of its own. Default: a private server.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Readings of each figure.")
@click.option("--steady", type=click.FloatRange(1), default=10.0, show_default=True, help="Seconds of steady load.")
@click.option(
    "--idle", type=click.FloatRange(1), default=30.0, show_default=True, help="Seconds to watch an idle worker for."
)
@click.option("--long", is_flag=True, help="Also measure million-row tables, memory and a pinned snapshot.")
@click.option("--crowd", type=click.IntRange(1000), default=1_000_000, show_default=True, help="Rows for --long.")
@click.option(
    "--pinned-seconds", type=click.FloatRange(2), default=600.0, show_default=True,
    help="How long a snapshot is pinned, for --long.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of a table.")
def main(
    jobs: int, engine: str, url: str | None, rounds: int, steady: float, idle: float, long: bool, crowd: int,
    pinned_seconds: float, as_json: bool,
) -> None:  # fmt: skip
    """Measure this machine: the raw limits of the database, Holdfast, and the ratios between them."""
    sizes = Sizes(
        jobs=jobs, rounds=rounds, steady_seconds=steady, idle_seconds=idle, long=long, crowd=crowd,
        pinned_seconds=pinned_seconds,
    )  # fmt: skip
    figures = measure(("sqlite", "postgres") if engine == "both" else (engine,), url=url, sizes=sizes)
    click.echo(json.dumps(figures) if as_json else report(figures))


if __name__ == "__main__":
    main(prog_name="python -m bench")
