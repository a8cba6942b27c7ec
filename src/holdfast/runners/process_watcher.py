"""Watches the processes that run a worker's handlers: one thread reads what they send, notices how they end, and wakes
their owner (the pool, or the runner of isolated attempts) to start and stop them.

The thread lives as long as any of the processes does. It must: the kernel kills a process when the thread that started
it ends (see `spawn`)."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from holdfast import events
from holdfast.runners.capture import Capture
from holdfast.runners.spawn import Child
from holdfast.runners.wire import Channel, Garbled, ToWorker

TICK = 0.1  # seconds between two looks whether a process has ended, where the kernel does not tell; or after an error


class WatchedProcess(Protocol):
    @property
    def child(self) -> Child: ...
    @property
    def channel(self) -> Channel: ...
    @property
    def output(self) -> Capture | None:
        """What it writes to stdout and stderr, if that is kept."""

    def kill(self) -> None: ...


P = TypeVar("P", bound=WatchedProcess)
P_contra = TypeVar("P_contra", bound=WatchedProcess, contravariant=True)


class ProcessOwner(Protocol[P_contra]):
    """Everything is called on the watcher's thread."""

    def received(self, process: P_contra, message: ToWorker, /) -> None:
        """Raises Garbled for what an honest process does not send."""

    def disconnected(self, process: P_contra, /) -> None:
        """It will send nothing more; or nothing that counts, if `channel.broken` says why."""

    def ended(self, process: P_contra, /) -> None:
        """The process itself is gone, and everything it sent was received."""

    def lost(self, process: P_contra, error: Exception, /) -> None:
        """Looking after it raised this error, and it was killed."""

    def look(self) -> None:
        """Called in every round: start and stop what has to be."""

    def next_look_at(self) -> float | None:
        """When to look again at the latest (monotonic)."""


class ProcessWatcher(Generic[P]):
    def __init__(self, name: str, owner: ProcessOwner[P]) -> None:
        self.processes: list[P] = []
        self.changed = threading.Condition()  # notified when a process is gone, and by the owner
        self._owner = owner
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._waking = threading.Lock()
        self._wakeable = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

    # -- from any thread -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def wake(self) -> None:
        with self._waking, suppress(BlockingIOError):  # then it is awake
            if self._wakeable:
                os.write(self._wake_out, b"!")

    def await_none(self, seconds: float) -> bool:
        """Wait so long until all processes are gone."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.processes, max(0.0, seconds))

    def end_when_empty(self) -> None:
        """The thread ends when no process is left."""
        self._closing = True
        self.wake()

    def close(self, timeout: float) -> None:
        self.end_when_empty()
        if self.started:
            self._thread.join(max(0.0, timeout))
        if not self._thread.is_alive():
            with self._waking:
                if self._wakeable:
                    self._wakeable = False
                    os.close(self._wake_in)
                    os.close(self._wake_out)
            self._selector.close()

    # -- on its own thread ---------------------------------------------------------------------------------------------

    def add(self, process: P) -> None:
        with self.changed:
            self.processes.append(process)
        self._selector.register(process.channel.connection, selectors.EVENT_READ, process)
        if process.output is not None:
            self._selector.register(process.output.fd, selectors.EVENT_READ, process)
        if process.child.watched is not None:
            self._selector.register(process.child.watched, selectors.EVENT_READ, process)

    def _run(self) -> None:
        while not (self._closing and not self.processes):
            try:
                self.round()
            except Exception as error:  # noqa: BLE001 - the thread that all processes depend on must survive any surprise
                self._report(error)
                time.sleep(TICK)

    def round(self) -> None:
        for key, mask in self._selector.select(self._longest_wait()):
            if key.fileobj == self._wake_in:
                os.read(self._wake_in, 4096)
            elif key.data in self.processes:
                self._attend(key.data, key.fileobj, mask)
        for process in list(self.processes):
            if process.child.watched is None and process.child.ended():
                self._end(process)
        self._owner.look()
        for process in self.processes:
            self._watch_backlog(process)

    def _longest_wait(self) -> float | None:
        times = [] if (at := self._owner.next_look_at()) is None else [max(0.0, at - time.monotonic())]
        if any(process.child.watched is None for process in self.processes):
            times.append(TICK)
        return min(times, default=None)

    def _attend(self, process: P, ready: Any, mask: int) -> None:
        try:
            if ready is process.channel.connection:
                if mask & selectors.EVENT_WRITE:
                    process.channel.outgoing.flush()
                if mask & selectors.EVENT_READ and not self._receive(process):
                    self._unwatch(ready)
                    self._owner.disconnected(process)
            elif ready == process.child.watched:
                self._end(process)
            elif process.output is not None and not process.output.read():
                self._unwatch(ready)
        except Exception as error:  # noqa: BLE001 - as above
            self._report(error)
            self._unwatch(ready)
            process.kill()

    def _receive(self, process: P) -> bool:
        """False: nothing more will come, or nothing that counts."""
        messages = process.channel.receive()
        self._pass_on(process, messages or ())
        return messages is not None and not process.channel.broken

    def _pass_on(self, process: P, messages: Iterable[ToWorker]) -> None:
        try:
            for message in messages:
                self._owner.received(process, message)
        except Garbled as garbled:
            process.channel.broken = str(garbled)

    def _end(self, process: P) -> None:
        try:
            was_broken = process.channel.broken
            self._pass_on(process, process.channel.receive_rest())
            if process.channel.broken and not was_broken:
                self._owner.disconnected(process)
            self._unwatch_all(process)
            self._owner.ended(process)
        except Exception as error:  # noqa: BLE001 - as above
            self.drop(process, error)
        else:
            self._remove(process)

    def drop(self, process: P, error: Exception) -> None:
        """Looking after it raised this error: do without it."""
        self._report(error)
        self._unwatch_all(process)
        process.kill()
        self._owner.lost(process, error)
        self._remove(process)

    def _remove(self, process: P) -> None:
        with self.changed:
            self.processes.remove(process)
            self.changed.notify_all()

    def _watch_backlog(self, process: P) -> None:
        """A socket is only watched for being writable while there is something to write."""
        wanted = selectors.EVENT_READ | (0 if process.channel.outgoing.empty else selectors.EVENT_WRITE)
        known = self._selector.get_map().get(process.channel.connection)
        if known is not None and known.events != wanted:
            self._selector.modify(process.channel.connection, wanted, process)

    def _unwatch_all(self, process: P) -> None:
        self._unwatch(process.channel.connection)
        self._unwatch(process.child.watched)
        if process.output is not None:
            self._unwatch(process.output.fd)

    def _unwatch(self, watched: Any) -> None:
        if watched is not None:
            with suppress(KeyError, ValueError):  # it was closed, or is not watched any more
                self._selector.unregister(watched)

    def _report(self, error: Exception) -> None:
        events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")
