"""The URL names a standby before the primary: everything goes to the primary."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ha.servers import a_pair, a_scene, ask, both, told

JOBS = 10


@pytest.mark.parametrize("version", [16, 18])
def test_transactions_of_handlers_find_the_primary_behind_a_standby(tmp_path: Path, version: int) -> None:
    with a_pair(version) as (primary, standby), a_scene(tmp_path, both(standby, primary)) as scene:
        for task in ("pay", "hold"):
            scene.enqueue(scene.url, task, JOBS)
        scene.start()
        scene.await_done(primary.url, 2 * JOBS)
        told(f"standby first, PostgreSQL {version}", jobs=2 * JOBS, charged=scene.charged(primary.url))
        assert scene.states(primary.url) == {"succeeded": 2 * JOBS}
        assert scene.charged(primary.url) == 0
        assert scene.ran().total() == ask(primary.url, "select count(*) from paid") == 2 * JOBS
