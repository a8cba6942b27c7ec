"""`keys`: API keys for the HTTP API."""

from __future__ import annotations

import click

from holdfast.cli.base import (
    ago,
    cli,
    database_option,
    open_app,
    output_option,
    print_data,
    print_table,
    talk,
    who_options,
)
from holdfast.errors import BadArguments
from holdfast.model.access import ROLES, Role


@cli.group()
def keys() -> None:
    """Create, list and revoke API keys for `holdfast serve`.

    \b
    Examples:
      holdfast keys list
      holdfast keys create --help
    """


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What requests with this key may do.")
@who_options
@database_option
def create(name: str, role: Role, by: str | None, reason: str | None, url: str | None) -> None:
    """Create an API key and print it. It is not shown again: the database has a hash of it.

    \b
    Examples:
      holdfast keys create deploy --role operator
      holdfast keys create shop --role submitter --reason "orders of the web shop"
    """
    click.echo(open_app(url).create_api_key(name, role, by=by, reason=reason))
    talk("send it as Authorization: Bearer …; it is not shown again")


@keys.command("list")
@output_option
@database_option
def list_(output: str, url: str | None) -> None:
    """List the API keys, without their secrets.

    \b
    Examples:
      holdfast keys list
      holdfast keys list -o json
    """
    found = open_app(url).api_keys()
    if output != "table":
        print_data([key.as_dict() for key in found], output)
        return
    print_table(
        ("name", "role", "created", "by"), [(key.name, key.role, ago(key.created_at), key.created_by) for key in found]
    )


@keys.command()
@click.argument("name")
@who_options
@database_option
def revoke(name: str, by: str | None, reason: str | None, url: str | None) -> None:
    """Revoke an API key: from now on it opens nothing.

    \b
    Examples:
      holdfast keys revoke ci
      holdfast keys revoke old --reason "it was in a log"
    """
    if not open_app(url).revoke_api_key(name, by=by, reason=reason):
        raise BadArguments(f"nothing is named {name!r:.80}; `holdfast keys list` shows the API keys")
    talk(f"the key {name} opens nothing any more")
