"""What a hostile handler may write to its line: frames that are valid, almost valid, or nonsense."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.runners.arrivals import WORDS as WORDS_OF

LONG = 7 * 2**20  # characters, now and then
SECRET = "hunter2-of-the-fuzzer"
NUMBERS = (0, 1, 2, 5, -1, 255, 65_535, 65_536, 2**31, 2**53, 10**15, 10**15 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
TIMES = (0.0, -1.0, 1.0, 1e9, 1e300, -1e300, math.nan, math.inf, -math.inf, 5e-324)
TEXTS = (
    "", "x", "note", "a\x00b", "\N{SNOWMAN}", f"password={SECRET}", f"postgresql://u:{SECRET}@h/d", "x" * 1000,
    "\\ud800", "HF1101", "BadSettings", "annotations", "JobFailed", "\x1b[31m", "y" * 5000,
)  # fmt: skip
RESULTS = (
    b"1", b'"x"', b"null", b"[1,2]", b'{"a":{"b":null}}', b"", b"\xff", b'"\xff\xfe"', b"NaN", b"[Infinity]", b"1e400",
    b'"\\u0000"', b'"\\ud800"', b"[" * 100 + b"]" * 100, b"[" * 5000, b"9" * 6000, b'"' + b"x" * 70_000 + b'"', b"{",
    b'"\x00"', b"1 2", b"18446744073709551616",
)  # fmt: skip
VERBS = ("succeed", "fail", "reschedule", "release", "park", "stop", "claim", "")
WORDS = (None, "errored", "timed_out", "released", "snoozed", "parked", "cancelled", "crashed", "lost", "x" * 300)
AGREED: dict[str, tuple[str | None, ...]] = {**WORDS_OF, "claim": (None,), "": (None,)}  # type: ignore[dict-item]
STACKS = (
    '{"pid":1,"thread":"t","text":"at line 1"}', '{"pid":-1,"thread":"t","text":""}', '{"pid":1e400}', "no stack", "",
    '{"pid":18446744073709551616,"thread":"t","text":"x"}', f'{{"pid":1,"thread":"a\\u0000","text":"token={SECRET}"}}',
    '{"pid":1,"thread":"t","text":"' + "y" * 2000 + '"}', '{"pid":1,"thread":"t","text":"\\ud800"}',
)  # fmt: skip
TAGS = (
    "hello", "start_failed", "ready", "done", "withdrawn", "progressed", "stack", "delivered", "began", "ended", "ask",
    "begin", "start", "close", "run", "reply", "", "x" * 300,
)  # fmt: skip
# What a process says while handlers run in it; what it says often.
POOLED = ("done", "done", "progressed", "progressed", "stack", "delivered", "withdrawn", "start_failed", "hello")
OPENING = ("ready", *POOLED)
ALONE = ("ask", "ask", "ask", "progressed", "progressed", "stack", "began", "ended", "start_failed")


class Frames:
    """By one chance, always the same. `tags`: what such a process says; `held`: what it was given, by its numbers."""

    def __init__(self, chance: random.Random, tags: Sequence[str], held: Sequence[tuple[int, ClaimedJob]]) -> None:
        self._chance = chance
        self._tags = tags
        self._held = held

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self._one()

    def _one(self) -> bytes:
        kind = self._chance.random()
        if kind < 0.8:
            return framed(msgspec.msgpack.encode(self._message()))
        if kind < 0.9:
            return framed(self._mutated(msgspec.msgpack.encode(self._message())))
        if kind < 0.94:
            return framed(msgspec.msgpack.encode(self._anything(0)))
        if kind < 0.97:
            return framed(self._chance.randbytes(self._chance.randrange(200)))
        if kind < 0.99:
            return self._chance.randbytes(self._chance.randrange(1, 200))
        data = msgspec.msgpack.encode(self._message())
        length = self._chance.choice([0, 1, len(data) - 1, len(data) + 1, 2**16, 2**23, 2**24, 2**31, 2**32 - 1])
        return max(0, length).to_bytes(4, "big") + data

    def _mutated(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._chance.randrange(1, 4)):
            at = self._chance.randrange(len(changed) + 1)
            match self._chance.randrange(4):
                case 0:
                    changed[at : at + 1] = self._chance.randbytes(1)
                case 1:
                    del changed[at : at + self._chance.randrange(1, 9)]
                case 2:
                    changed[at:at] = self._chance.randbytes(self._chance.randrange(1, 9))
                case _:
                    changed[at:at] = changed[: self._chance.randrange(20)]
        return bytes(changed)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _message(self) -> Any:
        pick = self._chance.choice
        tag = pick(TAGS) if self._rarely() else pick(self._tags)
        number, _ = self._attempt()
        match tag:
            case "done":
                numbers = [self._attempt()[0] for _ in range(self._chance.randrange(4))]
                count = len(numbers) if not self._rarely() else self._chance.randrange(5)
                started, ended = ([self._time() for _ in range(count)] for _ in range(2))
                results = pick([[], [pick([None, *RESULTS]) for _ in range(count)]])
                others = [self._other() for _ in range(self._chance.randrange(3))]
                return [tag, numbers, started, ended, results, others]
            case "withdrawn":
                return [tag, pick([True, False]), [number]]
            case "progressed":
                return [tag, [[number, self._count(), pick([None, self._count()]), pick([None, *TEXTS])]], [number]]
            case "stack":
                return [tag, number, pick(STACKS)]
            case "ended":
                return [tag, pick([None, self._other()[3]])]
            case "ask":
                return [tag, self._count(), self._request()]
            case "start_failed":
                return [tag, pick(TEXTS), pick(TEXTS), pick(TEXTS)]
            case "hello":
                return [
                    tag,
                    pick([{}, {pick(TEXTS): self._anything(2)}]),
                    pick([[], [{"name": "other"}], [self._anything(1)]]),
                ]
            case "ready":
                return [tag, pick([None, [], ["errored"], [pick(TEXTS)]])]
            case "delivered" | "began":
                return [tag]
            case _:
                return [tag, self._anything(1)]

    def _attempt(self) -> tuple[int, ClaimedJob]:
        """Mostly one that the process has."""
        number, held = self._chance.choice(self._held)
        return (self._chance.choice(NUMBERS) if self._rarely() else number), held

    def _other(self) -> list[Any]:
        pick = self._chance.choice
        number, held = self._attempt()
        other = self._rarely()
        long = [pick(TEXTS), "z" * (LONG if self._chance.random() < 0.002 else 20_000), "t" * 20_000]
        error = pick([None, [pick(TEXTS), pick(TEXTS), pick([None, *TEXTS])], long])
        verb = pick(VERBS) if self._rarely() else pick(VERBS[:6])
        word = pick(WORDS if self._rarely() else AGREED[verb])
        outcome = [
            verb, pick(NUMBERS) if other else held.id, pick(TEXTS) if other else held.fence, word,
            pick([None, *RESULTS]), self._time(), error, pick([None, *TEXTS]), pick([True, False, False]),
            pick([None, [self._count(), None, pick(TEXTS)]]),
        ]  # fmt: skip
        return [number, self._time(), self._time(), outcome]

    def _request(self) -> Any:
        pick = self._chance.choice
        match self._chance.randrange(4) if not self._rarely() else self._chance.randrange(4, 6):
            case 0:
                return ["checkpoint", pick([None, *RESULTS]), self._count(), pick([None, self._count()])]
            case 1:
                return ["step", pick(TEXTS)]
            case 2:
                return ["keep_step", pick(TEXTS), pick(RESULTS)]
            case 3:
                return ["records_success"]
            case 4:
                return [pick(["delete", "succeed", "close", "__class__", "read"]), self._anything(1), self._anything(1)]
            case _:
                return self._anything(0)

    def _rarely(self) -> bool:
        return self._chance.random() < 0.04

    def _count(self) -> int:
        return self._chance.choice(NUMBERS) if self._rarely() else self._chance.randrange(1000)

    def _time(self) -> float:
        return self._chance.choice(TIMES)

    def _anything(self, depth: int) -> Any:
        pick = self._chance.choice
        match self._chance.randrange(9 if depth < 4 else 6):
            case 0:
                return pick(NUMBERS)
            case 1:
                return pick(TIMES)
            case 2:
                return pick(TEXTS)
            case 3:
                return pick(RESULTS)
            case 4:
                return pick([None, True, False])
            case 5:
                return msgspec.msgpack.Ext(self._chance.randrange(128), b"x")
            case 6:
                return {pick(TEXTS): self._anything(depth + 1) for _ in range(self._chance.randrange(3))}
            case _:
                return [self._anything(depth + 1) for _ in range(self._chance.randrange(5))]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
