"""Runs `holdfast worker` in place of this process."""

from __future__ import annotations

import os
import sys

from holdfast import Holdfast


def become_worker(hf: Holdfast, app: str, *options: str) -> None:
    hf.close()
    os.execv(sys.executable, [sys.executable, "-m", "holdfast", "worker", app, *options])  # noqa: S606
