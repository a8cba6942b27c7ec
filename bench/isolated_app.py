"""An application whose one task asks for a process of its own. Apart from the other: a worker that serves such tasks
looks for their jobs, too."""

from __future__ import annotations

from holdfast import Holdfast

hf = Holdfast()


@hf.task(isolation="process")
def alone() -> None:
    pass
