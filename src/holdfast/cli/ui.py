"""`ui`: the dashboard of any database."""

from __future__ import annotations

import click

from holdfast.app import Looking
from holdfast.cli.base import cli, database_option, open_app, talk
from holdfast.cli.serve import stopped_by_signals, the_server


@cli.command()
@click.argument("database", metavar="[URL]", required=False)
@click.option("--operate", is_flag=True, help="Not only look: pause, cancel, retry and whatever else operators do.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any that is free.")
@database_option
def ui(database: str | None, operate: bool, port: int, url: str | None) -> None:
    """Open a dashboard on a database: look at its jobs, and change nothing.

    URL is that of the database, sqlite:///file.db or postgresql://…; it is found as for other commands if it is left
    out. No code of an application is needed. Only programs on this machine reach the dashboard. With --operate it can
    do what operators do.

    \b
    Examples:
      holdfast ui sqlite:///jobs.db
      holdfast ui --app app.py --operate
    """
    if database and url and database != url:
        raise click.UsageError(f"two databases are named, {database} and --url {url}: which one?")
    found = open_app(database or url)
    app = found if operate else Looking(found, alone=True)
    server = the_server()(app, "127.0.0.1", port, runs_jobs=False, most="admin" if operate else "viewer")
    with stopped_by_signals(server):
        talk(f"dashboard of {app.settings.shown_url}: {server.url}/")
        talk("Ctrl-C stops it" if operate else "it only looks; --operate lets it do more. Ctrl-C stops it")
        server.run_until_stopped()
    app.close()
