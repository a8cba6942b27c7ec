"""`migrate` and `sql`: bring a database's schema up to date, or print the SQL that does."""

from __future__ import annotations

from contextlib import closing

import click

from holdfast.app import Holdfast
from holdfast.app_loader import database_at, suggested_app
from holdfast.cli.base import app_argument, cli, find_app, output_option, print_data, talk, url_option
from holdfast.errors import BadArguments, BadSettings
from holdfast.settings import Settings, load_settings, sources
from holdfast.store import open_store
from holdfast.store.migrate import newest, pending, script
from holdfast.store.postgres.roles import script as script_of_roles
from holdfast.store.sqlite.connect import is_there

ENGINES = ["postgres", "sqlite"]


@cli.command()
@app_argument
@click.option("--dry-run", is_flag=True, help="Only say what would be applied.")
@url_option
@output_option
def migrate(app: str | None, dry_run: bool, url: str | None, output: str) -> None:
    """Bring the schema of APP's database, or of the one at --url, up to date. May run in many places at once.

    \b
    Examples:
      holdfast migrate --url sqlite:///jobs.db
      holdfast migrate app:hf --dry-run
    """
    configured = _named(app, url)
    if dry_run:
        names = _pending(configured.settings)
        talk(f"{configured.settings.shown_url} needs {len(names) or 'no'} migrations; nothing was changed")
    else:
        names = configured.migrate()
        talk(f"{configured.settings.shown_url} is up to date")
    if output == "table":
        for name in names:
            click.echo(name)
    else:
        print_data(names, output)


def _named(app: str | None, url: str | None) -> Holdfast:
    """Never the default: it would create a file that nobody asked for."""
    if app or (load_settings().app and url is None):
        return find_app(app, url=url)
    if url is None and sources()["url"] == "default":
        there = suggested_app()
        raise BadSettings(
            "which database? Name the application, as in `holdfast migrate app.py`, or a URL by --url, HOLDFAST_URL or "
            "holdfast.toml" + (f"; there is {there}" if there else ""),
            number="HF1152",
        )
    return database_at(url)


def _pending(settings: Settings) -> list[str]:
    if settings.url.startswith("sqlite") and not is_there(settings):
        return [migration.name for migration in pending("sqlite", 0)]  # opening it would create the file
    with closing(open_store(settings)) as store:
        return store.schema.pending()


@cli.group()
def sql() -> None:
    """Print the schema, or roles for it, as SQL to apply yourself. Needs no connection.

    \b
    Examples:
      holdfast sql install --engine postgres
      holdfast sql upgrade --from 1 --engine sqlite
    """


engine_option = click.option("--engine", type=click.Choice(ENGINES), required=True)
schema_option = click.option("--schema", help="PostgreSQL: the schema our tables live in. [env: HOLDFAST_SCHEMA]")


@sql.command()
@engine_option
@schema_option
def install(engine: str, schema: str | None) -> None:
    """Print the whole schema, for a database without it.

    \b
    Examples:
      holdfast sql install --engine postgres --schema jobs
      holdfast sql install --engine sqlite
    """
    _print(engine, 0, schema)


@sql.command()
@click.option("--from", "since", type=click.IntRange(0), required=True, help="The version the schema is at now.")
@engine_option
@schema_option
def upgrade(since: int, engine: str, schema: str | None) -> None:
    """Print the SQL that upgrades an older version of the schema to this one.

    \b
    Examples:
      holdfast sql upgrade --from 1 --engine postgres
      holdfast sql upgrade --from 1 --engine sqlite
    """
    if since > newest(engine):
        raise BadArguments(
            f"--from {since} is newer than this Holdfast, which knows {newest(engine)}: upgrade it first"
        )
    _print(engine, since, schema)


@sql.command()
@schema_option
@click.option("--role-prefix", help="What the names of the roles begin with. Default: the schema's name and _.")
def roles(schema: str | None, role_prefix: str | None) -> None:
    """Print PostgreSQL roles that own the tables, work, enqueue or only read. May be applied repeatedly.

    \b
    Examples:
      holdfast sql roles
      holdfast sql roles --schema jobs --role-prefix shop_jobs_
    """
    click.echo(script_of_roles(load_settings(schema=schema).schema, role_prefix), nl=False)


def _print(engine: str, since: int, schema: str | None) -> None:
    settings = load_settings(schema=schema)
    click.echo(script(engine, since, schema=settings.schema, prefix=settings.prefix), nl=False)
