"""Crawl from the command line: `python -m examples.crawl --help`."""

from __future__ import annotations

import json
import sys
from typing import Any, get_args

import click

from examples import working
from examples.crawl import urls
from holdfast import HoldfastError


@click.group()
def main() -> None:
    """Crawls web sites: politely, and whatever happens to the machines that do it.

    HOLDFAST_URL names the database (sqlite:///crawl.db). See README.md."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
@click.option("--no-worker", is_flag=True, help="Only serve: workers run elsewhere.")
def serve(host: str, port: int, no_worker: bool) -> None:
    """Serve the page, with a worker in the same process."""
    from examples import serving
    from examples.crawl.app import hf, set_up
    from examples.crawl.web import web

    set_up()
    sys.exit(serving.serve(web, hf, host, port, worker=not no_worker))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def worker(options: tuple[str, ...]) -> None:
    """Work what waits, until told to stop. Start as many as you like, on as many hosts. OPTIONS are those of
    `holdfast worker`: -v tells of claims and rescues."""
    from examples.crawl.app import hf, set_up

    set_up()
    working.become_worker(hf, "examples.crawl.app:hf", *options)


@main.command()
@click.argument("url")
@click.option("--scope", type=click.Choice(get_args(urls.ScopeKind)), default="host", show_default=True,
              help="What belongs to it: the host, what lies below the page, or subdomains, too.")  # fmt: skip
@click.option("--depth", "max_depth", type=click.IntRange(0), help="Links from the start page, at most.")
@click.option("--pages", "max_pages", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--delay", type=click.FloatRange(0), default=1.0, show_default=True,
              help="Seconds between two requests to a host. Its robots.txt may ask for more.")  # fmt: skip
def start(url: str, **options: Any) -> None:
    """Crawl the site that begins at URL."""
    from examples.crawl.app import set_up, submit

    set_up()
    click.echo(submit(url, **options).source_id)


@main.command()
@click.argument("crawl_id", required=False)
def status(crawl_id: str | None) -> None:
    """How a crawl stands, or all of them."""
    from examples.crawl.app import hf, set_up
    from examples.crawl.database import connect
    from examples.crawl.reports import all_crawls, one_crawl

    set_up()
    with connect(hf.settings.url) as db:
        if crawl_id is None:
            show(all_crawls(db))
        elif (found := one_crawl(db, crawl_id)) is not None:
            show(found)
        else:
            raise click.ClickException(f"there is no crawl {crawl_id}")


def _verb(name: str, help: str) -> None:
    @main.command(name, help=help)
    @click.argument("crawl_id")
    def call(crawl_id: str) -> None:
        from examples.crawl.app import crawls, set_up

        set_up()
        click.echo(getattr(crawls.job(crawl_id), name)())


_verb("pause", "Let a crawl finish what is under way, and rest.")
_verb("resume", "Let it go on.")
_verb("cancel", "Stop it for good.")
_verb("retry", "Go on with a crawl that failed or was cancelled, where it was.")


@main.command()
@click.argument("crawl_id")
@click.argument("what", type=click.Choice(["pages", "links", "errors", "dead-links", "skipped"]))
def export(crawl_id: str, what: str) -> None:
    """Write a crawl's pages, links, … to stdout as CSV."""
    from examples.crawl.app import hf, set_up
    from examples.crawl.database import connect
    from examples.crawl.exports import EXPORTS, lines
    from examples.crawl.reports import one_crawl

    set_up()
    with connect(hf.settings.url) as db:
        if one_crawl(db, crawl_id) is None:
            raise click.ClickException(f"there is no crawl {crawl_id}")
        for line in lines(db, EXPORTS[what], crawl_id):
            click.echo(line, nl=False)


@main.command()
def scene() -> None:
    """Play a short scene: a slow site with faults, a killed crawl, a pause."""
    from examples.crawl.scene import play

    sys.exit(play())


def show(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def run() -> None:
    try:
        main(prog_name="python -m examples.crawl")
    except (urls.NotForUs, HoldfastError) as refused:
        sys.exit(f"error: {refused}")


if __name__ == "__main__":
    run()
