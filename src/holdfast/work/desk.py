"""The one loop: take finished attempts, take free slots, go to the database once (record those outcomes, claim as many
jobs as there are free slots), hand out, wait. Batching follows from load: an idle worker records a lone finish at once,
a busy one records what piled up while the database worked.

An outcome, once decided, is never dropped: it is sent until it is recorded, or the fence is found gone (R5.12). While
outcomes wait, nothing new is claimed. After a commit whose reply was lost, the fence of the claim is looked up, and
what it took is run."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.model.job import Claimed, Held, Wants
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.model.rescue import alone_for
from holdfast.settings import Settings
from holdfast.store.base import Ear, Ref, Store
from holdfast.work.attempt import Attempt
from holdfast.work.endings import TRIP, Endings, Flight
from holdfast.work.flights import CONTENDED, Flights
from holdfast.work.hand import Hand
from holdfast.work.lane import FEW, Lane, LaneName, Meters, Runner
from holdfast.work.loop import Bell
from holdfast.work.offers import Offers
from holdfast.work.poller import Poller
from holdfast.work.telling import Telling

TOO_LATE = 1.0  # seconds after which what was claimed ahead and has not begun is given back
ONCE_MORE = 0.1  # seconds after which a look that found something, but not all it wanted, is repeated
PEEK = 10.0  # seconds after which a worker that holds back for a suspect sees whether that one still waits


class Desk(Flights):
    def __init__(self, worker: str, store: Store, settings: Settings, queues: tuple[str, ...] | None) -> None:
        self._worker = worker
        self._store = store
        self._settings = settings
        self._timeouts: dict[str, float | None] = {}
        self._queues = queues
        self.poller = Poller(settings.backoff)
        self.meters = Meters()
        self.lanes: list[Lane] = []
        self._numbered: list[Lane] = []  # with the one for suspects
        self._lane_of: dict[str, Lane] = {}
        self._solo: Lane | None = None
        self._hand = Hand()
        self._telling = Telling(worker, self._hand)
        self._done: deque[tuple[Attempt, Outcome | Crash | None]] = deque()
        self._succeeded: deque[tuple[list[Attempt], list[Outcome]]] = deque()
        self.ends = Endings(worker, store, settings, self._hand, self._telling, self.meters)
        self._offers = Offers(worker)
        self._fence = ""  # of the next claim, made while there is nothing else to do
        self._unknown: list[str] = []  # fences of claims whose reply was lost
        self._wake = Bell()
        self._ear: Ear | None = None
        self.heard: Callable[[str, str], None] = lambda kind, what: None
        self.deaf: Callable[[Exception], None] = lambda error: None
        # When to look for work next: at a time others have seen, at a time of our own. Instants are monotonic.
        self._hint_at: float | None = None
        self._look_at: float | None = None
        self._not_before = 0.0
        self.nothing_due = False  # so the newest look said
        self._alone: Attempt | None = None
        self._alone_until = 0.0
        self._ran_alone = False  # a suspect has ended: that is recorded first, as the next one waits for empty hands
        self._peek_at = 0.0
        self._broke = False  # the last trip ended with its connection
        self._failures = 0
        self.claiming = True
        self.limit: int | None = None  # how many more jobs may be claimed (drain with a budget)
        self.thorough = False  # where nothing is found, nothing is due (drain)
        self.broken: Callable[[], None] = lambda: None  # tells that a connection broke

    def add(self, runner: Runner) -> None:
        lane = self._number(Lane(runner, runner.manifest.names, len(self._numbered)))
        self.lanes.append(lane)
        self._lane_of.update(dict.fromkeys(lane.tasks, lane))
        for task in runner.manifest.tasks:
            self._timeouts.update(dict.fromkeys((task.name, *task.aliases), task.timeout))

    def add_solo(self, runner: Runner) -> None:
        """Run suspects there, alone each in its process, whatever else is in hand."""
        lane = next((lane for lane in self.lanes if lane.runner is runner), None)
        self._solo = lane or self._number(Lane(runner, (), len(self._numbered)))

    def _number(self, lane: Lane) -> Lane:
        self._numbered.append(lane)
        return lane

    # -- called from other threads ---------------------------------------------------------------------------------

    def finished(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        self._done.append((attempt, outcome))
        self._wake.ring()

    def succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        """Many at once, none of which recorded its success itself."""
        self._succeeded.append((attempts, outcomes))
        self._wake.ring()

    def wake(self) -> None:
        """Look for work soon: a hint. Safe from a signal handler."""
        self._look_everywhere()
        self._wake.ring()

    def attend(self, ear: Ear) -> None:
        """Make our trips this way, and hear there of new work."""
        self._ear = ear
        self._wake.ring()

    def told(self, queue: str, task: str, priority: int) -> None:
        """A due job was enqueued there: a hint."""
        lane = self._lane_of.get(task)
        if lane is not None:
            if len(lane.told) < FEW:
                lane.told.append((queue, task, priority))
            else:
                lane.look = True  # it is not emptied while there is no room
            self._wake.ring()

    def given(self, job: Held, at: float) -> None:
        """Whoever enqueued this claimed it for us then, as we offered. If we took the offer back it is looked up, or
        was; so is one that we hear of late, which others may have rescued."""
        if not self._offers.taken(job.fence):
            return
        if self._offers.age(at) > self._settings.lease / 4:
            self._unknown.append(job.fence)
            return
        self._start(job)
        self._offers.came_alone(job)
        self.poller.found()
        self._telling.claimed([job])

    def due_in(self, seconds: float) -> None:
        """Somebody saw when the next job falls due."""
        if seconds <= 0:
            self.nothing_due = False
        self._hint_at = time.monotonic() + max(0.0, seconds)
        self._wake.ring()

    def in_hand(self) -> list[Attempt]:
        return self._hand.attempts()

    def undecided(self) -> list[Attempt]:
        """What is in hand and has not ended yet."""
        self._take_finished()
        decided = self.ends.decided()
        return [a for a in self._hand.attempts() if Ref(a.held.id, a.held.fence) not in decided]

    def withdraw(self) -> None:
        """Give back what has not begun, and offer nothing more."""
        self._offers.end()
        for lane in {id(lane): lane for lane in (*self.lanes, self._solo) if lane is not None}.values():
            self._withdraw(lane, lane.runner.withdraw())

    def _withdraw(self, lane: Lane, back: list[Attempt]) -> None:
        lane.runner.busy -= len(back)
        self.limit = None if self.limit is None else self.limit + len(back)
        self.ends.outcomes += [given_back(attempt.held, started=False) for attempt in back]

    def _give_back_late(self) -> None:
        """What was claimed ahead and did not get a slot soon is left to others."""
        now = time.monotonic()
        for lane in self.lanes:
            if (late := lane.late_at(TOO_LATE)) is not None and late <= now:
                self._withdraw(lane, lane.runner.withdraw(-lane.free if lane.free < 0 else None))
                lane.pace.stalled()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """One round: record, claim, hand out. False: there was nothing to do."""
        self._hear()
        self._take_finished()
        self._give_back_late()
        return self._trip()

    def _trip(self) -> bool:
        if self.ends.to_verify:
            return self._try(self.ends.verify)
        if self.ends.crashes and time.monotonic() >= self.ends.crashes_at:
            return self._try(self._report_crashes, poll=False)
        if self._offers.ended:
            return self._try(self._withdraw_offers, poll=False)
        if self._unknown:
            return self._try(self._recover, poll=False)
        lanes = self._hungry()
        if lanes:
            return self._try(lambda: self._look(lanes))
        if self.ends.outcomes or self.ends.emptied or (self.ends.spent and not self.claiming):
            return self._try(self._exchange)
        if self._offers.due():
            return self._try(self._see_to_offers, poll=False)
        return False

    def wait(self, longest: float | None = None) -> None:
        """Until a finish, a wake-up, or the time to look again."""
        self._fence = self._fence or str(uuid.uuid4())
        now = time.monotonic()
        times = [at for at in (self._look_at, self._hint_at) if at is not None] if self._has_room() else []
        if self._not_before > now and any(lane.wanted and self._limits(lane) != (0, 0) for lane in self.lanes):
            times.append(self._not_before)  # a look is only put off
        times = [max(at, self._not_before) for at in times]
        times += [at for at, _ in self.ends.blocked]
        times += [self.ends.crashes_at] if self.ends.crashes else []
        times += [self._offers.at] if self._offers.at is not None else []
        times += [late for lane in self.lanes if (late := lane.late_at(TOO_LATE)) is not None]
        patience = self._alone_until if self._alone is not None else self._peek_at if self._holding_back() else None
        if patience is not None and patience > now:
            times.append(patience + 0.01)
        timeout = longest
        if times:
            until = max(0.0, min(times) - now)
            timeout = until if timeout is None else min(timeout, until)
        self._wake.wait(timeout, -1 if self._ear is None else self._ear.fileno())

    def idle(self) -> bool:
        """Nothing in hand, nothing to record."""
        spent = self.ends.spent and not self.claiming
        ended = self._done or self._succeeded
        return not (self._hand or ended or self._offers.ended or self._unknown or self.ends or spent)

    def _hear(self) -> None:
        if self._ear is None:
            return
        try:
            for kind, what in self._ear.hear():
                self.heard(kind, what)
        except Exception as error:  # noqa: BLE001 - whoever may notify may send us anything
            self.hang_up()
            self.deaf(error)

    def hang_up(self) -> None:
        if self._ear is not None:
            self._ear.close()
            self._ear = None
            self._offers.end()

    def _see_to_offers(self) -> None:
        """Offer what has come alone, if there is nothing in hand; else offer nothing."""
        if self._hand or self._ear is None or not self._offers_jobs():
            self._offers.end()
        else:
            self._offers.make(self._ear, lambda kind, others: self._lane_of[kind[1]].free > others)

    def _offers_jobs(self) -> bool:
        """A worker that takes jobs as they come, and runs suspects in a place of their own."""
        drains = self.limit is not None or self.thorough
        ready = self.claiming and self._ear is not None and self._ear.can_offer and self._solo is not None
        return ready and not drains and not self._settings.after_job_delay

    def _withdraw_offers(self) -> None:
        self._unknown += self._offers.withdraw(self._store)

    def _take_finished(self) -> None:
        now = time.monotonic()
        self.ends.unblock(now)
        if not self._done and not self._succeeded:
            return
        self._offers.stir()
        while self._succeeded:
            self._take_succeeded(*self._succeeded.popleft())
        while self._done:
            self._take_one(*self._done.popleft())
        for lane in self.lanes:
            lane.pace.measure()
        if self._settings.after_job_delay:
            self._not_before = now + self._settings.after_job_delay
        if not self.poller.listening:
            self._look_everywhere()  # a slot is free (R3.4)

    def _take_succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        """`_take_one` for many: what is rare is looked at once for all of them."""
        numbers = {attempt.lane for attempt in attempts}
        special = self._alone is not None or self.ends.any_given_back
        if special or len(numbers) != 1 or self._numbered[attempts[0].lane] is self._solo:
            for attempt, outcome in zip(attempts, outcomes, strict=True):
                self._take_one(attempt, outcome)
            return
        lane = self._numbered[attempts[0].lane]
        lane.runner.busy -= len(attempts)
        seconds = longest = 0.0
        for attempt in attempts:
            started = attempt.started
            seconds += attempt.ended - started
            if started - attempt.taken > longest:
                longest = started - attempt.taken
        lane.pace.ended(len(attempts), seconds, longest)
        self.ends.outcomes += outcomes

    def _take_one(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        lane = self._numbered[attempt.lane]
        lane.runner.busy -= 1
        if lane is self._solo:
            self._look_everywhere()  # another suspect may wait for its place
        if attempt.ended:
            lane.pace.ended(1, attempt.ended - attempt.started, attempt.started - attempt.taken)
        if attempt is self._alone:
            self._alone = None
            self._ran_alone = True
        if self.ends.is_given_back(attempt.held):
            return
        if isinstance(outcome, Crash):
            self.ends.crashes.append((attempt, outcome))
            return
        if outcome is None and attempt.reason != "lost":
            outcome = given_back(attempt.held, started=bool(attempt.started))
        if outcome is not None and self.limit is not None and outcome.verb == "release" and not attempt.started:
            self.limit += 1
        if outcome is None:
            self.meters.lost += 1
            self.ends.forget(attempt.held)
        elif outcome.recorded:
            self.ends.to_verify.append((attempt, outcome))
        else:
            self.ends.outcomes.append(outcome)

    def _report_crashes(self) -> None:
        self.ends.report_crashes()
        self._look_everywhere()

    def _has_room(self) -> bool:
        return any(self._limits(lane) != (0, 0) for lane in self.lanes)

    def _look_everywhere(self) -> None:
        for lane in self.lanes:
            lane.look = True

    def _hungry(self) -> list[Lane]:
        """The lanes to claim for now: those with room, when it is the time to look."""
        now = time.monotonic()
        if any(at is not None and at <= now for at in (self._look_at, self._hint_at)):
            self._look_at = self._hint_at = None
            self._look_everywhere()
        if now < self._not_before or not self._may_claim():
            return []
        # Who goes to record something anyway looks again where there was work: hints get lost among others.
        going = bool(self.ends.outcomes)
        return [lane for lane in self.lanes if (lane.wanted or (going and lane.again)) and self._limits(lane) != (0, 0)]

    def _may_claim(self) -> bool:
        if not self.claiming or self.limit == 0 or self.ends.one_by_one or (self._failures and self.ends.outcomes):
            return False
        if self._alone is not None:
            return time.monotonic() >= self._alone_until
        if self._ran_alone and self.ends.outcomes:
            return False
        return not self._holding_back() or time.monotonic() >= self._peek_at

    def _holding_back(self) -> bool:
        """A suspect waits until some worker has nothing in hand: we take nothing new meanwhile, except one job now and
        then, to see whether it still waits. So nobody stands still for a suspect that another has long run."""
        return bool(self._hand) and any(lane.holds_back for lane in self.lanes)

    def _look(self, lanes: Sequence[Lane]) -> None:
        """Claim for each runner that has room, and record what is to be recorded with it. What wakes us from here on is
        about something newer than this look."""
        self.nothing_due = True
        if len(lanes) == len(self.lanes) and all(lane.look for lane in lanes):
            self._look_at = None  # this is that look
        for lane in lanes:
            limit, ahead = self._limits(lane)
            if limit + ahead > 0 and self._may_claim():
                try:
                    self._exchange(self._wants(lane, limit, ahead, lane.where()), lane)
                except BaseException:
                    lane.look = True
                    self.nothing_due = False
                    raise

    def _limits(self, lane: Lane) -> tuple[int, int]:
        """How many jobs to claim for free slots, and how many ahead of them."""
        if self._holding_back():
            return int(lane.free > 0), 0
        room = lane.free if self._settings.after_job_delay else min(TRIP, lane.room - len(self.ends.outcomes[TRIP:]))
        if self.limit is not None:
            room = min(room, self.limit)
        limit = max(0, min(lane.free, room))
        return limit, max(0, room - limit)

    def _wants(self, lane: Lane, limit: int, ahead: int, told: tuple[LaneName, ...]) -> Wants:
        fence, self._fence = self._fence or str(uuid.uuid4()), ""
        return Wants(
            fence=fence, worker=self._worker, tasks=lane.tasks, limit=limit, ahead=ahead,
            lease=self._settings.lease, queues=self._queues, told=told, held=self._company(),
            thorough=self.thorough,
        )  # fmt: skip

    def _company(self) -> int:
        """How many attempts one that is claimed now would have beside it: a suspect is claimed if there are none."""
        if self._solo is None:
            return len(self._hand)
        return 0 if self._solo.free > 0 else max(1, len(self._hand))

    # -- what a trip brought -------------------------------------------------------------------------------------------

    def _take(self, flight: Flight, claimed: Claimed) -> tuple[Lane, list[Attempt]]:
        """What a trip claimed is in hand from now on."""
        assert flight.lane is not None
        lane = (self._solo if claimed.alone else None) or flight.lane
        attempts = self._attempts(lane, claimed.jobs, flight.departed)
        flight.unsure = False
        return lane, attempts

    def _plan(self, flight: Flight, claimed: Claimed) -> None:
        """What a trip claimed tells when to look again."""
        wants, lane = flight.wants, flight.lane
        assert wants is not None
        assert lane is not None
        if claimed.jobs:
            lane.pace.weigh(len(claimed.jobs), sum([len(job.args) for job in claimed.jobs]))
            self.nothing_due = False
            self.poller.found()
            if self.limit is not None:
                self.limit -= len(claimed.jobs)
            if claimed.alone:
                self._leave_alone(claimed.jobs[0])
            self._telling.claimed(claimed.jobs)
            if len(claimed.jobs) > 1 or lane.free <= 0:
                self._offers.end()  # what comes next would overtake others, or wait here
            if len(claimed.jobs) == 1 and wants.told and self._offers_jobs():
                self._offers.came_alone(claimed.jobs[0])
        self.meters.last_poll = time.monotonic()
        lane.holds_back = claimed.hold_back and self._solo is None
        lane.passed = claimed.passed
        lane.found(claimed.jobs)
        if lane.holds_back:
            self._peek_at = time.monotonic() + PEEK
        if claimed.more and not claimed.jobs:
            # All that is due is locked by others, perhaps for long: again soon, but not at once.
            self.nothing_due = False
            self._look_at = time.monotonic() + CONTENDED
            return
        full = claimed.passed or len(claimed.jobs) == wants.limit + wants.ahead
        if full or claimed.more or claimed.alone or lane.holds_back:
            self.nothing_due = False
            lane.look = True
            return
        if claimed.jobs and not self.poller.listening:
            lane.look = True  # polling: again at once while there is work and room (R3.4)
            return
        if wants.told:
            self.nothing_due = False
            self._look_within(ONCE_MORE)  # at all lanes
            return
        wait = self.poller.wait(claimed.next_due)
        if claimed.jobs:
            wait = ONCE_MORE if wait is None else min(wait, ONCE_MORE)
        if wait is not None:
            self._look_within(wait)
        if not claimed.jobs:
            events.emit("polled", empty_polls=self.poller.empty_polls, wait=wait or 0.0)

    def _look_within(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self._look_at = at if self._look_at is None else min(at, self._look_at)

    def _attempts(self, lane: Lane, jobs: Sequence[Held], leased: float = 0.0) -> list[Attempt]:
        now, timeouts = time.monotonic(), self._timeouts
        attempts = [Attempt(held, timeouts[held.task], now, lane.number, leased=leased) for held in jobs]
        lane.runner.busy += len(attempts)
        self._hand.take(attempts)
        return attempts

    def _leave_alone(self, suspect: Held) -> None:
        """Take nothing else for as long as it is under suspicion, unless it has a process to itself."""
        if self._solo is not None:
            return
        self._alone = self._hand.get(suspect.id, suspect.fence)
        try:
            seconds = alone_for(self._store.get(str(suspect.id)).suspicion)
        except HoldfastError:  # it is away, or the job was deleted: rather too long than too short
            seconds = alone_for(2)
        self._alone_until = time.monotonic() + seconds

    def _recover(self) -> None:
        """A commit's reply was lost: did that claim happen? Then its jobs are ours to run, or to give back."""
        fence = self._unknown[0]
        claimed = self._store.claim_of(fence)
        self._unknown.pop(0)
        known = [held for held in claimed.jobs if self._hand.get(held.id, held.fence) is None]
        self.limit = None if self.limit is None else max(0, self.limit - len(known))
        alone = claimed.alone and not self._company() and self.claiming
        for held in known:
            self._start(held, self._solo if alone else None)
            if alone:
                self._leave_alone(held)

    def _start(self, held: Held, lane: Lane | None = None) -> None:
        """Run what was claimed for us, unless we stop: then it is given back."""
        if self.claiming:
            lane = lane or self._lane_of[held.task]
            lane.runner.start(self._attempts(lane, [held]))
        else:
            self.ends.outcomes.append(given_back(held, started=False))
