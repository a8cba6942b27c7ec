"""Care for Django's database connections in handlers. Only applications that use Django import it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from holdfast.app import Holdfast
from holdfast.tasks.around import AttemptInfo


def close_connections(hf: Holdfast) -> None:
    """Close Django's connections that are broken, or older than CONN_MAX_AGE, before and after each attempt, as Django
    does around a request. Otherwise a thread whose connection the server ended would fail every job from then on."""

    @hf.around_attempt
    def django_connections(attempt: AttemptInfo) -> Iterator[None]:
        if _on_a_loop():  # connections belong to the thread that asynchronous code calls Django on
            yield
            return
        close_old_connections()
        try:
            yield
        finally:
            close_old_connections()

    @hf.around_attempt
    async def django_connections_of_coroutines(attempt: AttemptInfo) -> AsyncIterator[None]:
        await sync_to_async(close_old_connections)()
        try:
            yield
        finally:
            await sync_to_async(close_old_connections)()


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
