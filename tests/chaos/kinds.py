"""The kinds of jobs in the load, and how each may end. Data only: producers choose by it, the checker judges by it."""

from __future__ import annotations

from typing import NamedTuple

CRASHES = frozenset({"CRASHED", "QUARANTINED"})  # may fail any job: a worker may be killed under it once too often


class Kind(NamedTuple):
    weight: int = 10  # how often producers choose it
    ends: frozenset[str] = frozenset({"succeeded"})  # unless people cancel it, or crashes use up its attempts
    codes: frozenset[str] = frozenset()  # what its attempts may be charged for, besides crashes
    ledger: bool = False  # its success and its row of the ledger are one commit
    isolated: bool = False  # each attempt has a process of its own
    poison: bool = False  # it takes down the process it runs in
    expires: bool = False
    token: bool = True  # it returns the token it was given


def _only(*words: str) -> frozenset[str]:
    return frozenset(words)


KINDS: dict[str, Kind] = {
    "quick": Kind(40),
    "aquick": Kind(40),
    "nap": Kind(15),
    "doze": Kind(20),
    "busy": Kind(3),
    "outside": Kind(20),
    "aoutside": Kind(15),
    "ledger": Kind(20, ledger=True, token=False),
    "aledger": Kind(20, ledger=True, token=False),
    "own_ledger": Kind(8, codes=_only("RETRY"), ledger=True, token=False),
    "once_ledger": Kind(8, ledger=True, token=False),
    "late_ledger": Kind(6, ledger=True, token=False),
    "forgetful": Kind(3, ends=_only("failed"), codes=_only("NOT_COMMITTED", "NO_USE"), token=False),
    "lone": Kind(4, isolated=True),
    "alone_async": Kind(2, isolated=True),
    "lone_ledger": Kind(3, isolated=True, ledger=True, token=False),
    "lone_checkpoints": Kind(2, isolated=True),
    "lone_flaky": Kind(2, codes=_only("Planned"), isolated=True),
    "lone_slow": Kind(1, ends=_only("failed"), codes=_only("TIMED_OUT"), isolated=True),
    "steps": Kind(10),
    "asteps": Kind(10),
    "checkpoints": Kind(10),
    "acheckpoints": Kind(12),
    "parent": Kind(8, ledger=True, token=False),
    "enqueuer": Kind(8),
    "child": Kind(0),
    "flaky": Kind(12, codes=_only("Planned")),
    "again": Kind(6, codes=_only("RETRY")),
    "exhausted": Kind(4, ends=_only("failed"), codes=_only("Planned")),
    "hopeless": Kind(4, ends=_only("failed"), codes=_only("NO_USE")),
    "resigned": Kind(3, ends=_only("cancelled"), codes=_only("CANCELLED")),
    "snoozer": Kind(8),
    "late": Kind(4),
    "late_snooze": Kind(4),
    "late_retry": Kind(6, codes=_only("Planned")),
    "late_fail": Kind(4, ends=_only("failed"), codes=_only("NO_USE")),
    "late_cancel": Kind(3, ends=_only("cancelled"), codes=_only("CANCELLED")),
    "slow": Kind(4, ends=_only("failed"), codes=_only("TIMED_OUT")),
    "spawner": Kind(6),
    "keyed": Kind(15),
    "expiring": Kind(8, ends=_only("succeeded", "cancelled"), expires=True),
    "long": Kind(6),
    "along": Kind(8),
    "tick": Kind(0, token=False),
    "unheard_of": Kind(0, ends=_only("queued"), token=False),  # no worker has such a task
    "poison_exit": Kind(1, ends=_only("failed"), poison=True),
    "poison_segv": Kind(1, ends=_only("failed"), poison=True),
    "poison_kill": Kind(1, ends=_only("failed"), poison=True),
    "lone_poison": Kind(1, ends=_only("failed"), isolated=True, poison=True),
}  # fmt: skip
