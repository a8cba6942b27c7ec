"""What supervisors and monitors ask, without a key: does it live, can it serve, is it healthy?"""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.responses import Response

from holdfast.errors import BadSettings, RequestRefused, StoreError
from holdfast.http.call import Call, answer
from holdfast.http.operator_documents import Limit
from holdfast.http.problems import HEADERS
from holdfast.model.alerts import Alert
from holdfast.model.health import NO_ANSWER
from holdfast.monitoring import exposition

PROMETHEUS = "text/plain; version=1.0.0; charset=utf-8"


class Alerts(msgspec.Struct, frozen=True):
    alerts: list[Alert]


class AlertsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Limit = 100


class Alive(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


async def live(call: Call) -> Response:
    """The process lives. Says nothing of the database."""
    return answer(Alive())


async def ready(call: Call) -> Response:
    """The database answers, and its schema fits."""
    await call.in_thread(call.app.store.schema.check)
    return answer(Alive())


async def health(call: Call) -> Response:
    """Healthy, with 200: a worker polled within the last minute, and its last five polls did not all fail. Else 503.
    The figures are those of the last 60 seconds, of all healthy workers together."""
    try:
        found = await call.app.ahealth()
    except StoreError:
        found = NO_ANSWER
    return answer(found, 200 if found.healthy else 503)


async def metrics(call: Call) -> Response:
    """Depths, rates, durations, failures, polls and the alerts that stand, as of now."""
    return answer(await call.app.ametrics())


async def prometheus(call: Call) -> Response:
    """The same for Prometheus, as text."""
    try:
        text = await call.in_thread(exposition, call.app)
    except BadSettings as missing:
        raise RequestRefused(missing.message, status=501, number=missing.number) from None
    return Response(text, headers={**HEADERS, "Content-Type": PROMETHEUS})


async def alerts(call: Call) -> Response:
    """The alerts that stand, then the newest that have ended."""
    return answer(Alerts(await call.app.aalerts(limit=call.query.limit)))
