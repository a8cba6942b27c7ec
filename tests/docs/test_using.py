"""The page on using it, run from top to bottom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "using.md"


def test_every_snippet_of_the_page_runs(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(snippets) == 4
    check = (
        "assert job.result == 'sent to you'\n"
        "assert once.created and not send.using(key='welcome-42', reuse='forever').enqueue('you').created\n"
        "assert [one.state.value for one in many] == ['succeeded'] * 3\n"
        "assert later.state.value == 'cancelled'\n"
        "assert {j.task: j.result for j in hf.jobs(limit=2)} == {'crawl': b'3', 'charge': b'{\"charged\":100}'}\n"
    )
    (tmp_path / "page.py").write_text("\n".join(snippets) + check)
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sent to you succeeded sent to you None []")
