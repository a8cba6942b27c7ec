"""What a worker knows of pauses by filter. The claim doesn't judge them: it tells their version, and the worker gives
back what they mean, as held and uncharged, before it starts. Where none stand, that costs comparing one number."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome, given_back
from holdfast.model.pause_filter import PauseFilter, pause_meaning
from holdfast.store.base import Store
from holdfast.store.filter_pauses import standing_filters

TRUSTED = 1.0  # seconds: then pauses are read again before jobs are held by them, as one may have been deleted by hand


class FilterPauses:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._version: int | None = 0  # the first version of every database: there has been no such pause
        self._pauses: tuple[PauseFilter, ...] = ()
        self._read_again_at = 0.0  # monotonic

    def split(self, jobs: Sequence[ClaimedJob], version: int | None) -> tuple[list[ClaimedJob], list[Outcome]]:
        """Those of these claimed jobs that may start, and what becomes of the others: they are given back as held.
        `version`: that of the pauses when the jobs were claimed; None: not known.

        Raises OutcomeUnknown if the pauses can't be read: the claim is to be looked up by its fence, so that nothing
        starts that should not and nothing is lost."""
        if jobs and (version is None or version != self._version):
            self._read()
        if not self._pauses:
            return list(jobs), []
        free, held = self._judge(jobs)
        if held and time.monotonic() >= self._read_again_at:
            self._read()
            free, held = self._judge(jobs)
        return free, held

    def _judge(self, jobs: Sequence[ClaimedJob]) -> tuple[list[ClaimedJob], list[Outcome]]:
        free: list[ClaimedJob] = []
        held: list[Outcome] = []
        for job in jobs:
            pause = pause_meaning(job.queue, job.task, job.args, self._pauses)
            if pause is None:
                free.append(job)
            else:
                held.append(replace(given_back(job, started=False), held_by=pause.hold))
        return free, held

    def _read(self) -> None:
        try:
            found = standing_filters(self._store.db)
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"jobs were claimed, and which are paused could not be read: {error}") from error
        self._version, self._pauses = found.version, found.pauses
        trusted = TRUSTED if found.ends_in is None else min(TRUSTED, found.ends_in)
        self._read_again_at = time.monotonic() + trusted
