"""Who waits for the bell hears every ring, whenever it comes."""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

import pytest

from holdfast.worker.loop import Bell

LONG = 20.0  # seconds


def test_a_bell_that_rang_before_is_heard_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(LONG)
    assert not bell.wait(0)


def test_a_bell_wakes_who_sleeps() -> None:
    bell = Bell()
    threading.Timer(0.05, bell.ring).start()
    began = time.monotonic()
    assert bell.wait(LONG)
    assert time.monotonic() - began < LONG / 2
    assert not bell.wait(0)


@pytest.mark.parametrize("seconds", [3e6, 1e12, math.inf])
def test_a_wait_may_be_asked_for_that_the_kernel_would_refuse(seconds: float) -> None:
    bell = Bell()
    threading.Timer(0.05, bell.ring).start()
    assert bell.wait(seconds)


def test_a_ring_in_the_very_moment_of_falling_asleep_is_heard() -> None:
    """After the look whether it rang, before the sleep."""
    bell = Bell()
    poll = bell._poll

    class LatePoll:
        def poll(self, milliseconds: float | None) -> list[tuple[int, int]]:
            bell.ring()
            return poll.poll(milliseconds)

    late: Any = LatePoll()
    bell._poll = late
    began = time.monotonic()
    assert bell.wait(LONG)
    assert time.monotonic() - began < LONG / 2


def test_a_ring_while_who_waits_wakes_up_is_heard_by_the_next_wait() -> None:
    bell = Bell()
    poll = bell._poll

    class EarlyPoll:
        def poll(self, milliseconds: float | None) -> list[tuple[int, int]]:
            found = poll.poll(milliseconds)
            bell.ring()  # it has waited in vain, and does not know of this yet
            return found

    early: Any = EarlyPoll()
    bell._poll = early
    heard = bell.wait(0)
    bell._poll = poll
    assert heard or bell.wait(LONG)


def test_thousands_of_rings_from_many_are_never_lost() -> None:
    """The last one least: each ringer waits for an answer to each of its rings."""
    bell, asked, answered = Bell(), [0] * 4, [0] * 4
    waited: list[bool] = []

    def ringer(who: int) -> None:
        for n in range(1, 501):
            asked[who] = n
            bell.ring()
            deadline = time.monotonic() + LONG
            while answered[who] < n:
                if time.monotonic() > deadline:
                    waited.append(False)
                    return
                time.sleep(0)

    threads = [threading.Thread(target=ringer, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        bell.wait(None if min(answered) < 500 and not waited else 0.01)
        answered[:] = asked
        if min(answered) == 500:
            break
    for thread in threads:
        thread.join(LONG)
    assert not waited


def test_a_bell_leaves_no_descriptors_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Bell().ring()
    assert len(os.listdir("/proc/self/fd")) == before
