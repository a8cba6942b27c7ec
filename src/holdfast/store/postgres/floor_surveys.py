"""Makes surveys (looks.py), each on a thread and a connection of its own: no claim waits for one. A thread lives as
long as its survey; whoever claims next sees whether it is time for another. After one that failed, looks are made
without floors, as ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.job import Wants
from holdfast.store.postgres.claim_floors import ClaimFloors, Survey, Tasks

Queues = tuple[str, ...] | None
CLOSING = 2.0  # seconds a store that closes waits for the survey under way


class Surveys:
    """What one store remembers of looks, by the queues they are for."""

    def __init__(self, survey: Callable[[Queues, Tasks], Survey]) -> None:
        self._survey = survey
        self._looks: dict[Queues, ClaimFloors] = {}
        self._threads: list[threading.Thread] = []

    def looks(self, wants: Wants) -> ClaimFloors:
        """What is remembered where these are wanted, and on the way a survey, should it be time for one."""
        looks = self._looks.get(wants.queues) or self._looks.setdefault(wants.queues, ClaimFloors())
        tasks = looks.begin_survey()
        if tasks:
            self.begin(looks, wants.queues, tasks)
        return looks

    def begin(self, looks: ClaimFloors, queues: Queues, tasks: Tasks) -> None:
        thread = threading.Thread(target=self.make, args=(looks, queues, tasks), name="holdfast-survey", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more
            looks.end_survey(None)
            events.emit("survey_failed", error=str(error))
        else:
            self._threads = [*self.under_way(), thread]

    def make(self, looks: ClaimFloors, queues: Queues, tasks: Tasks) -> None:
        found = None
        try:
            found = self._survey(queues, tasks)
        except StoreError as error:
            events.emit("survey_failed", error=str(error))
        except Exception as error:  # noqa: BLE001 - a thread of ours ends with a word, whatever it met
            events.emit("stumbled", part="holdfast-survey", error=f"{type(error).__name__}: {error}")
        finally:
            looks.end_survey(found)

    def under_way(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]

    def given_back(self) -> None:
        for looks in list(self._looks.values()):
            looks.given_back()

    def forget(self) -> None:
        """The server may be another, or have lost its last claims: jobs may stand where we had emptied a lane. So it is
        after a fork, too: the child opens connections of its own, and no survey is under way in it."""
        self._looks = {}

    def close(self) -> None:
        for thread in self.under_way():
            thread.join(CLOSING)
