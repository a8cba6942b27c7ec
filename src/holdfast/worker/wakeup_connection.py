"""The connection on which a desk makes its round trips and hears wake-ups."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from holdfast.model.peers import Place
from holdfast.store.base import Ear, Trips


class WakeupConnection:
    """Opened by the listener, which takes its time, and lent to the desk until it breaks. Only the desk's thread uses
    it."""

    def __init__(
        self, ear: Ear, received: Callable[[str, str, int | None], None], broke: Callable[[Exception], None]
    ) -> None:
        """`received` is called for each wake-up, `broke` once."""
        self._ear = ear
        self._received = received
        self._broke = broke

    def fileno(self) -> int:
        """Readable as soon as a wake-up may have arrived."""
        return self._ear.fileno()

    def trips(self) -> AbstractContextManager[Trips]:
        return self._ear.trips()

    def listen(self, place: Place) -> bool:
        """Listen to what concerns a worker of this rank. True: that is new, so something may have been missed."""
        return self._ear.tune(place)

    def deliver(self) -> None:
        """Pass on the wake-ups that arrived."""
        for kind, what, turn in self._ear.hear():
            self._received(kind, what, turn)

    def give_up(self, error: Exception) -> None:
        self._ear.close()
        self._broke(error)

    def close(self) -> None:
        self._ear.close()
