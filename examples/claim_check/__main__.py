"""Claim Check from the command line: `python -m examples.claim_check --help`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import click

from examples import working
from examples.claim_check import inputs
from holdfast import HoldfastError, JobNotFound


@click.group()
def main() -> None:
    """Judges what adverts and product pages claim, with a language model.

    HOLDFAST_URL names the database (sqlite:///claim-check.db), CLAIM_CHECK_MODEL_URL the model's API. See README.md."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
@click.option("--no-worker", is_flag=True, help="Only serve: workers, or a cron job, run elsewhere.")
def serve(host: str, port: int, no_worker: bool) -> None:
    """Serve the page and the routes, with a worker in the same process."""
    from examples import serving
    from examples.claim_check.app import hf, set_up
    from examples.claim_check.web import web

    set_up()
    sys.exit(serving.serve(web, hf, host, port, worker=not no_worker))


@main.command()
def worker() -> None:
    """Work what waits, until told to stop: `holdfast worker`. Start as many as you like, on as many hosts."""
    from examples.claim_check.app import hf, set_up

    set_up()
    working.become_worker(hf, "examples.claim_check.app:hf")


@main.command()
@click.argument("claim")
@click.option("--image", is_flag=True, help="CLAIM is the address of an image.")
@click.option("--wait", is_flag=True, help="Wait for the result.")
def submit(claim: str, image: bool, wait: bool) -> None:
    """Have CLAIM checked: the address of a page, or the text of an advert."""
    from examples.claim_check.app import analyses, set_up, submit
    from examples.claim_check.web import shown

    set_up()
    kind = "image_url" if image else "url" if claim.lower().startswith(("http://", "https://")) else "text"
    job = asyncio.run(submit(inputs.read({kind: claim}), str(uuid4())))
    if wait and not job.finished:
        click.echo(f"job {job.source_id} waits for a worker", err=True)
        list(job.updates())  # until it has finished
    show(shown(analyses.row(job.source_id)))


@main.command()
@click.argument("job_id")
@click.argument("job_token")
def status(job_id: str, job_token: str) -> None:
    """How a job stands."""
    from examples.claim_check.app import analyses, set_up
    from examples.claim_check.web import shown

    set_up()
    show(shown(analyses.row(job_id, token=job_token)))


@main.command()
def scene() -> None:
    """Play a short scene: a crowd, a killed worker, a model that does not keep to the form."""
    from examples.claim_check.scene import play

    sys.exit(play())


def show(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def run() -> None:
    try:
        main(prog_name="python -m examples.claim_check")
    except (inputs.InputRefused, JobNotFound) as refused:
        sys.exit(f"error: {refused}")
    except HoldfastError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run()
