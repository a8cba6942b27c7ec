"""A second host, as far as the network goes: a namespace with one link to this one, which can be cut."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


class Host:
    """`here` and `there` are the addresses of the two ends."""

    def __init__(self, number: int) -> None:
        self.name = f"hf{number}"
        self.here, self.there = (f"10.201.{number % 250}.{end}" for end in (1, 2))
        self.enter = ["ip", "netns", "exec", self.name]

    def up(self) -> None:
        _ip("netns", "add", self.name)
        _ip("link", "add", f"{self.name}h", "type", "veth", "peer", "name", f"{self.name}c", "netns", self.name)
        _ip("addr", "add", f"{self.here}/24", "dev", f"{self.name}h")
        _ip("link", "set", f"{self.name}h", "up")
        _ip("-n", self.name, "addr", "add", f"{self.there}/24", "dev", f"{self.name}c")
        _ip("-n", self.name, "link", "set", "lo", "up")
        self.join()

    def cut(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        _ip("-n", self.name, "link", "set", f"{self.name}c", "down")

    def join(self) -> None:
        _ip("-n", self.name, "link", "set", f"{self.name}c", "up")

    def down(self) -> None:
        for gone in (["link", "del", f"{self.name}h"], ["netns", "del", self.name]):
            with suppress(subprocess.CalledProcessError):
                _ip(*gone)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def another_host() -> Iterator[Host]:
    host = Host(os.getpid())
    try:
        host.up()
    except (OSError, subprocess.CalledProcessError) as error:
        host.down()
        said = getattr(error, "stderr", "") or str(error)
        pytest.skip(f"this machine makes no network namespaces: {said.strip()}")
    try:
        yield host
    finally:
        host.down()
