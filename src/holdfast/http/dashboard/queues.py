"""The queues: how much waits and for how long, and pausing them."""

from __future__ import annotations

from typing import Any

from holdfast.errors import BadArguments
from holdfast.http.dashboard.page import Doing, Done, Look


def load(look: Look) -> dict[str, Any]:
    queues = look.app.queues()
    paused = {pause.name: pause for pause in look.app.pauses() if pause.kind == "queue"}
    return {"queues": queues, "pauses": {queue.queue: paused.get(queue.queue) for queue in queues}}


async def pause(doing: Doing) -> Done:
    queue = _queue(doing)
    await doing.app.apause_queue(queue, reason=doing.text("reason"), by=doing.by)
    return Done(f"The queue {queue} is paused.")


async def resume(doing: Doing) -> Done:
    queue = _queue(doing)
    ended = await doing.app.aresume_queue(queue, reason=doing.text("reason"), by=doing.by)
    return Done(f"The queue {queue} goes on." if ended else f"The queue {queue} was not paused.")


def _queue(doing: Doing) -> str:
    queue = doing.text("queue")
    if queue is None:
        raise BadArguments("which queue? The form has a field `queue`")
    return queue
