"""`health`: asks a worker or a server how it is; for containers, whose images need no curl for it."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.cli.base import cli, output_option, say, to_json
from holdfast.errors import BadSettings, HoldfastError

PATIENCE = 4.0  # seconds: supervisors wait hardly longer
LARGEST = 1 << 20  # bytes of an answer


@cli.command()
@click.option(
    "--http", "address", default="127.0.0.1:8081", show_default=True, metavar="HOST:PORT",
    help="Where `holdfast worker --http` or `holdfast serve` listens.",
)  # fmt: skip
@click.option("--live", is_flag=True, help="Only: does it live?")
@click.option("--ready", is_flag=True, help="Only: does the database answer, and does its schema fit?")
@output_option
def health(address: str, live: bool, ready: bool, output: str) -> None:
    """Ask a worker or a server whether it is healthy: exit status 0 if so, 1 if not.

    \b
    Examples:
      holdfast health --live
      holdfast health --http 127.0.0.1:8000
    """
    if live and ready:
        raise BadSettings("say --live or --ready, not both")
    path = "/livez" if live else "/readyz" if ready else "/health"
    status, found = _asked(f"http://{address}{path}")
    if output != "table":
        click.echo(to_json(found))
    else:
        say(str(found.get("status") or found.get("reason") or found.get("detail") or status))
    if status != 200:
        reason = found.get("reason") or found.get("detail") or "its figures say why"
        raise HoldfastError(f"{address} answers {path} with {status}: {reason}", number="HF1515")


def _asked(url: str) -> tuple[int, dict[str, Any]]:
    import urllib.error  # only this command needs them
    import urllib.request
    from http.client import HTTPException

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a probe is for this machine
    try:
        try:
            with opener.open(url, timeout=PATIENCE) as answer:
                return answer.status, _document(answer.read(LARGEST))
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _document(refused.read(LARGEST))
    except (OSError, HTTPException, ValueError) as error:
        raise HoldfastError(f"{url} does not answer: {error}", number="HF1515") from None


def _document(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
