"""Site Audit from the command line: `python -m examples.site_audit --help`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from examples import working
from examples.safe_http import Refused, web_address
from examples.site_audit import database
from holdfast import HoldfastError


@click.group()
def main() -> None:
    """Says what is wrong with a website, how bad it is, and whether it got better.

    HOLDFAST_URL names the database (sqlite:///site-audit.db). See README.md."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
@click.option("--no-worker", is_flag=True, help="Only serve: workers run elsewhere.")
def serve(host: str, port: int, no_worker: bool) -> None:
    """Serve the page, with a worker in the same process."""
    from examples import serving
    from examples.site_audit.app import hf, set_up
    from examples.site_audit.web import web

    set_up()
    sys.exit(serving.serve(web, hf, host, port, worker=not no_worker))


@main.command()
def worker() -> None:
    """Work what waits, until told to stop: `holdfast worker`. Start as many as you like, on as many hosts."""
    from examples.site_audit.app import hf, set_up

    set_up()
    working.become_worker(hf, "examples.site_audit.app:hf")


@main.command()
@click.argument("url")
@click.option("--wait", is_flag=True, help="Wait for the result.")
def analyze(url: str, wait: bool) -> None:
    """Have the site at URL audited: insert a row, as the button does."""
    from examples.site_audit.app import audits, hf, set_up

    set_up()
    id = database.analyze(hf.settings.url, str(web_address(url)))
    if wait:
        click.echo(f"audit {id} waits for a worker", err=True)
        list(audits.job(id).updates())  # until it has finished
    status.callback(id)  # type: ignore[misc]


@main.command()
@click.argument("audit")
def status(audit: str) -> None:
    """How an audit stands, and what it found, as JSON."""
    from examples.site_audit.app import set_up
    from examples.site_audit.web import document

    set_up()
    show(document(audit))


@main.command()
@click.argument("urls", nargs=-1)
@click.option("--remove", is_flag=True, help="No longer every night.")
def sites(urls: tuple[str, ...], remove: bool) -> None:
    """Audit these sites every night; without URLS, list them."""
    from examples.site_audit.app import hf, set_up

    set_up()
    place = hf.settings.url
    statement = (
        "delete from sites where url = ?" if remove else "insert into sites (url) values (?) on conflict do nothing"
    )
    with database.connect(place) as db:
        for url in urls:
            db.execute(database.written(place, statement), [str(web_address(url))])
        for (url,) in db.execute("select url from sites order by url").fetchall():
            click.echo(url)


@main.command()
def scene() -> None:
    """Play a short scene: a site audited, mended and audited again; a killed worker; a night of twenty sites."""
    from examples.site_audit.scene import play

    sys.exit(play())


def show(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def run() -> None:
    try:
        main(prog_name="python -m examples.site_audit")
    except Refused as refused:
        sys.exit(f"error: {refused.reason}")
    except HoldfastError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run()
