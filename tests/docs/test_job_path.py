"""A job's path is short, and the script that measures it still can."""

from __future__ import annotations

import pytest

from scripts import job_path

MOST_PYTHON, MOST_SQL = 54, 6  # files from enqueue to the recorded outcome; they are to become fewer


@pytest.mark.parametrize("engine", job_path.ENGINES)
def test_a_job_passes_few_files(engine: str) -> None:
    path, rescue = job_path.traced(engine)
    python, sql = job_path.python_files(path), job_path.sql_files(engine, path)
    assert {"tasks/task.py", "worker/desk.py", "worker/exchange.py", f"store/{engine}/exchange.py"} <= python.keys()
    assert any("succeed" in names for names in sql.values())
    assert len(python) <= MOST_PYTHON
    assert len(sql) <= MOST_SQL
    assert {"worker/rescuer.py", "model/rescue.py"} <= job_path.python_files(rescue).keys()
    assert any("rescue" in names for names in job_path.sql_files(engine, rescue).values())
