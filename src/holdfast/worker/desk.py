"""The one loop: take finished attempts, take free slots, go to the database once (record those outcomes, claim as many
jobs as there are free slots), hand out, wait. Batching follows from load: an idle worker records a lone finish at once,
a busy one records what piled up while the database worked.

An outcome, once decided, is never dropped: it is sent until it is recorded, or the fence is found gone. While
outcomes wait, nothing new is claimed. After a commit whose reply was lost, the fence of the claim is looked up, and
what it took is run."""

from __future__ import annotations

import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from msgspec.structs import replace

from holdfast import events
from holdfast.model.job import Claimed, ClaimedJob, Wants
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.model.peers import LATE, Place
from holdfast.model.rescue import runs_isolated
from holdfast.runners.base import Runner
from holdfast.settings import Settings
from holdfast.store.base import Ear, Ref, Store
from holdfast.tasks.attempt import Attempt
from holdfast.worker.exchange import CONTENDED, Flights
from holdfast.worker.filter_pauses import FilterPauses
from holdfast.worker.in_flight import InFlight
from holdfast.worker.outbox import TRIP, Flight, Outbox
from holdfast.worker.outcome_events import OutcomeEvents, expire
from holdfast.worker.periodic import Bell
from holdfast.worker.poller import Poller
from holdfast.worker.runner_slots import FEW, LaneName, Meters, RunnerSlots
from holdfast.worker.suspects import Turns
from holdfast.worker.vain_wakeups import LONGEST as LONGEST_REST
from holdfast.worker.vain_wakeups import VainWakeups

TOO_LATE = 1.0  # seconds after which what was claimed ahead and has not begun is given back
WAIT = 10.0  # seconds a suspect may wait in hand for a process: then it is given back, for another worker may have one
ALL_KNOW = 1.0  # seconds after a wake-up for all in which a worker that is full wakes no others
ONCE_MORE = 0.1  # seconds after which a look that found something, but not all it wanted, is repeated


class Desk(Flights):
    def __init__(self, worker: str, store: Store, settings: Settings, queues: tuple[str, ...] | None) -> None:
        self._worker = worker
        self._store = store
        self._settings = settings
        self._timeouts: dict[str, float | None] = {}
        self._queues = queues
        self.poller = Poller(settings.backoff)
        self.meters = Meters()
        self.lanes: list[RunnerSlots] = []
        self._numbered: list[RunnerSlots] = []  # with the one for suspects, which is claimed for by none
        self._lane_of: dict[str, RunnerSlots] = {}
        self._solo: RunnerSlots | None = None
        self._turns = Turns()
        self._filter_pauses = FilterPauses(store)
        self._hand = InFlight()
        self._telling = OutcomeEvents(worker, self._hand)
        self._done: deque[tuple[Attempt, Outcome | Crash | None]] = deque()
        self._succeeded: deque[tuple[list[Attempt], list[Outcome]]] = deque()
        self.ends = Outbox(worker, store, settings, self._hand, self._telling, self.meters)
        self._fence = ""  # of the next claim, made while there is nothing else to do
        self._unknown: list[str] = []  # fences of claims whose reply was lost
        self._wake = Bell()
        self._ear: Ear | None = None
        self._place = Place()
        self._all_woken = 0.0  # when we heard a wake-up for all (monotonic)
        self._doubt = VainWakeups(store.newest)
        self._passes_on = False  # the look asked for is this worker's alone: it tells of what falls due later
        self.heard: Callable[[str, str, int | None], None] = lambda kind, what, turn: None
        self.deaf: Callable[[Exception], None] = lambda error: None
        # When to look for work next: at a time others have seen, at a time of our own. Instants are monotonic.
        self._hint_at: float | None = None
        self._hint_asks = False  # that look is one that a wake-up asked for, and nobody looks before us
        self._hinted_at = 0.0  # when we passed such a time on, as we were full
        self._pass_at: float | None = None  # when others are told of a job that we had no slot for when we were told
        self._look_at: float | None = None
        self._not_before = 0.0
        self.nothing_due = False  # so the newest look said
        self._broke = False  # the last trip ended with its connection
        self._failures = 0
        self._expired = False  # attempts were given back because they expired
        self.claiming = True
        self.end_by = math.inf  # monotonic: when a shutdown is to be over
        self.limit: int | None = None  # how many more jobs may be claimed (drain with a budget)
        self.thorough = False  # where nothing is found, nothing is due (drain)
        self.broken: Callable[[], None] = lambda: None  # tells that a connection broke

    def add(self, runner: Runner) -> None:
        lane = self._number(RunnerSlots(runner, runner.manifest.names, len(self._numbered)))
        self.lanes.append(lane)
        self._lane_of.update(dict.fromkeys(lane.tasks, lane))
        for task in runner.manifest.tasks:
            self._timeouts.update(dict.fromkeys((task.name, *task.aliases), task.timeout))

    def add_solo(self, runner: Runner) -> None:
        """Run suspects there: each gets a process of its own, whatever else is in hand."""
        self._solo = self._number(RunnerSlots(runner, (), len(self._numbered)))

    def _number(self, lane: RunnerSlots) -> RunnerSlots:
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
        """Look for work soon: a hint for all workers. Safe from a signal handler."""
        self._all_woken = time.monotonic()
        self._look_everywhere()
        self._wake.ring()

    def attend(self, ear: Ear) -> None:
        """Make our trips this way, and hear there of new work."""
        self._ear = ear
        self._wake.ring()

    def hinted(self, turn: int | None) -> None:
        """A few workers were told that a job waits somewhere, and so many of them look before this one. None: all were
        told."""
        if turn:
            self._look_within(LATE)
        elif not self._rests():
            self._look_everywhere()
        if turn is None:
            self._all_woken = time.monotonic()
        elif not turn:
            self._passes_on = True
            self._pass_on_if_full(self.lanes)
        self._wake.ring()

    def told(self, queue: str, task: str, priority: int, turn: int = 0) -> None:
        """A due job was enqueued there: a hint. So many others look before this one."""
        lane = self._lane_of.get(task)
        if lane is None:
            return
        if turn:
            if len(lane.later) < FEW:
                lane.later.append((time.monotonic() + LATE, (queue, task, priority)))
        elif self._rests():
            pass
        elif len(lane.told) < FEW:
            lane.told.append((queue, task, priority))
        else:
            lane.look = True  # it is not emptied while there is no room
        if not turn:
            self._pass_on_if_full([lane])
        self._wake.ring()

    def _rests(self) -> bool:
        """A wake-up asks for a look now. True: it comes when the rest is over."""
        self._doubt.asked = True
        left = self._doubt.until - time.monotonic()
        if left > 0:
            self._look_within(left)
        return left > 0

    def _pass_on_if_full(self, lanes: Iterable[RunnerSlots]) -> None:
        """A job was told of to us, and those whom nobody told may have a slot. In a moment: more may come."""
        if self._pass_at is None and self._place.count > 1 and any(self._limits(lane) == (0, 0) for lane in lanes):
            self._pass_at = time.monotonic() + LATE

    def due_in(self, seconds: float, turn: int = 0) -> None:
        """Somebody saw when the next job falls due."""
        if seconds <= 0:
            self.nothing_due = False
        at = max(time.monotonic() + max(0.0, seconds) + (LATE if turn else 0.0), self._doubt.until)
        if self._hint_at is None or at < self._hint_at:
            self._hint_at, self._hint_asks = at, not turn
        self._wake.ring()

    def placed(self, place: Place) -> None:
        """The worker's place among its peers: it says which wake-ups to act on."""
        self._place = place
        self._wake.ring()

    @property
    def open(self) -> bool:
        """Does it hear wake-ups, and has a free slot?"""
        return self.poller.listening and self.claiming and self._has_room()

    def in_hand(self) -> list[Attempt]:
        return self._hand.attempts()

    def undecided(self) -> list[Attempt]:
        """What is in hand and has not ended yet."""
        self._take_finished()
        decided = self.ends.decided()
        return [a for a in self._hand.attempts() if Ref(a.held.id, a.held.fence) not in decided]

    def withdraw(self) -> None:
        """Give back what has not begun."""
        for lane in self._numbered:
            self._withdraw(lane, lane.runner.withdraw())

    def _withdraw(self, lane: RunnerSlots, back: list[Attempt], delays: Iterable[float] = repeat(0.0)) -> None:
        lane.runner.busy -= len(back)
        self._give_back([attempt.held for attempt in back], delays)

    def _give_back_late(self) -> None:
        """What was claimed ahead and did not get a slot soon is left to others."""
        now = time.monotonic()
        for lane in self.lanes:
            if (late := lane.late_at(TOO_LATE)) is not None and late <= now:
                self._withdraw(lane, lane.runner.withdraw(-lane.free if lane.free < 0 else None))
                lane.pace.stalled()
        if self._solo is not None and (late := self._solo.late_at(WAIT)) is not None and late <= now:
            back = self._solo.runner.withdraw(-self._solo.free)
            self._withdraw(self._solo, back[::-1], self._turns.delays(len(back), now))

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
        if self._unknown:
            return self._try(self._recover, poll=False)
        if self._expired and not self.ends.outcomes:
            return self._try(self._expire, poll=False)
        lanes = self._hungry()
        if lanes:
            return self._try(lambda: self._look(lanes))
        if self.ends.outcomes or self.ends.emptied or (self.ends.spent and not self.claiming):
            return self._try(self._exchange)
        return False

    def wait(self, longest: float | None = None) -> None:
        """Until a finish, a wake-up, or the time to look again."""
        self._fence = self._fence or str(uuid.uuid4())
        now = time.monotonic()
        times = [at for at in (self._look_at, self._hint_at) if at is not None]
        if not self._has_room() and self._place.count == 1:
            times = []
        if self._not_before > now and any(lane.wanted and self._limits(lane) != (0, 0) for lane in self.lanes):
            times.append(self._not_before)  # a look is only put off
        times = [max(at, self._not_before) for at in times]
        times += [] if self._pass_at is None else [self._pass_at]
        times += [at for at, _ in self.ends.blocked]
        times += [self.ends.crashes_at] if self.ends.crashes else []
        times += [late for lane in self.lanes if (late := lane.late_at(TOO_LATE)) is not None]
        times += [lane.later[0][0] for lane in self.lanes if lane.later and self._limits(lane) != (0, 0)]
        if self._solo is not None and (late := self._solo.late_at(WAIT)) is not None:
            times.append(late)
        timeout = longest
        if times:
            until = max(0.0, min(times) - now)
            timeout = until if timeout is None else min(timeout, until)
        self._wake.wait(timeout, -1 if self._ear is None else self._ear.fileno())

    @property
    def found_all(self) -> bool:
        """The newest look found nothing due, and no job comes again that this worker has put off."""
        return self.nothing_due and time.monotonic() > self._turns.until

    def idle(self) -> bool:
        """Nothing in hand, nothing to record."""
        spent = self.ends.spent and not self.claiming
        ended = self._done or self._succeeded or self.ends or self._expired
        return not (self._hand or ended or self._unknown or spent)

    def _hear(self) -> None:
        if self._ear is None:
            return
        try:
            if self._ear.tune(self._place):
                self._look_everywhere()  # listen first, then look
            for kind, what, turn in self._ear.hear():
                self.heard(kind, what, turn)
        except Exception as error:  # noqa: BLE001 - whoever may notify may send us anything
            self.hang_up()
            self.deaf(error)

    def hang_up(self) -> None:
        if self._ear is not None:
            self._ear.close()
            self._ear = None

    def _take_finished(self) -> None:
        now = time.monotonic()
        self.ends.unblock(now)
        if not self._done and not self._succeeded:
            return
        while self._succeeded:
            self._take_succeeded(*self._succeeded.popleft())
        while self._done:
            self._take_one(*self._done.popleft())
        for lane in self.lanes:
            lane.pace.measure()
        if self._settings.after_job_delay:
            self._not_before = now + self._settings.after_job_delay
        if not self.poller.listening:
            self._look_everywhere()  # a slot is free

    def _take_succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        """`_take_one` for many: what is rare is looked at once for all of them."""
        numbers = {attempt.lane for attempt in attempts}
        if self.ends.any_given_back or len(numbers) != 1 or self._numbered[attempts[0].lane] is self._solo:
            for attempt, outcome in zip(attempts, outcomes, strict=True):
                self._take_one(attempt, outcome)
            return
        lane = self._numbered[attempts[0].lane]
        lane.runner.busy -= len(attempts)
        seconds = longest = 0.0
        for n, attempt in enumerate(attempts):
            started = attempt.started
            seconds += attempt.ended - started
            if started - attempt.taken > longest:
                longest = started - attempt.taken
            if attempt.done is not None:
                outcomes[n] = replace(outcomes[n], progress=attempt.progress)
        lane.pace.ended(len(attempts), seconds, longest)
        self.ends.outcomes += outcomes

    def _take_one(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        lane = self._numbered[attempt.lane]
        if lane is self._solo:
            self._turns.freed(time.monotonic(), all_busy=lane.free <= 0)
        lane.runner.busy -= 1
        if attempt.ended:
            lane.pace.ended(1, attempt.ended - attempt.started, attempt.started - attempt.taken)
        if self.ends.is_given_back(attempt.held):
            return
        if isinstance(outcome, Crash):
            self.ends.crashes.append((attempt, outcome))
            return
        if outcome is None and attempt.reason != "lost":
            outcome = given_back(attempt.held, started=bool(attempt.started))
            self._expired = self._expired or (attempt.begin_by is not None and not attempt.started)
        if outcome is not None and attempt.done is not None:
            outcome = replace(outcome, progress=attempt.progress)
        if outcome is not None and self.limit is not None and outcome.verb == "release" and not attempt.started:
            self.limit += 1
        if outcome is None:
            self.meters.lost += 1
            self.ends.forget(attempt.held)
        elif outcome.recorded:
            self.ends.to_verify.append((attempt, outcome))
        else:
            self.ends.outcomes.append(outcome)

    def _expire(self) -> None:
        """What was given back because it expired is queued again: the database says whether it has."""
        expire(self._store)
        self._expired = False

    def _report_crashes(self) -> None:
        self.ends.report_crashes()
        self.nothing_due = False  # they may wait again
        self._look_everywhere()

    def _has_room(self) -> bool:
        return any(self._limits(lane) != (0, 0) for lane in self.lanes)

    def _look_everywhere(self) -> None:
        for lane in self.lanes:
            lane.look = True

    def _hungry(self) -> list[RunnerSlots]:
        """The lanes to claim for now: those with room, when it is the time to look."""
        now = time.monotonic()
        if any(at is not None and at <= now for at in (self._look_at, self._hint_at)):
            self._time_to_look(now)
        if self._pass_at is not None and self._pass_at <= now:
            self._pass_at = None
            if any(self._limits(lane) == (0, 0) for lane in self.lanes):
                self._store.notify([""])  # to all: a few might be full as well
        if now < self._not_before or not self._may_claim():
            return []
        # Who goes to record something anyway looks again where there was work: hints get lost among others.
        going = bool(self.ends.outcomes)
        return [lane for lane in self.lanes if (lane.wanted or (going and lane.again)) and self._limits(lane) != (0, 0)]

    def _time_to_look(self, now: float) -> None:
        if self._hint_at is not None and self._hint_at <= now and self._hint_asks:
            self._doubt.asked = True
        self._look_at = self._hint_at = None
        self._look_everywhere()
        if self._place.count > 1 and not self._has_room():
            # Few keep in mind when jobs fall due: if they are full, others have to look. In a moment, if they just did.
            if now < self._hinted_at + LATE:
                self._look_at = self._hinted_at + LATE
            else:
                self._hinted_at = now
                self._store.hint("")

    def _may_claim(self) -> bool:
        outcomes_wait = self.ends.one_by_one or bool(self._failures and self.ends.outcomes)
        return self.claiming and self.limit != 0 and not outcomes_wait

    def _look(self, lanes: Sequence[RunnerSlots]) -> None:
        """Claim for each runner that has room, and record what is to be recorded with it. What wakes us from here on is
        about something newer than this look."""
        self.nothing_due = len(lanes) == len(self.lanes)  # else some were not looked at: they have no room
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
        if self._doubt.asked and self._doubt.in_vain(time.monotonic()):
            self._telling.woken_in_vain(LONGEST_REST)

    def _limits(self, lane: RunnerSlots) -> tuple[int, int]:
        """How many jobs to claim for free slots, and how many ahead of them."""
        room = lane.free if self._settings.after_job_delay else min(TRIP, lane.room - len(self.ends.outcomes[TRIP:]))
        if self.limit is not None:
            room = min(room, self.limit)
        limit = max(0, min(lane.free, room))
        return limit, max(0, room - limit)

    def _wants(self, lane: RunnerSlots, limit: int, ahead: int, told: tuple[LaneName, ...]) -> Wants:
        fence, self._fence = self._fence or str(uuid.uuid4()), ""
        return Wants(
            fence=fence, worker=self._worker, tasks=lane.tasks, limit=limit, ahead=ahead,
            lease=self._settings.lease, queues=self._queues, told=told, held=len(self._hand),
            thorough=self.thorough,
        )  # fmt: skip

    # -- what a trip brought -------------------------------------------------------------------------------------------

    def _take(self, flight: Flight, claimed: Claimed) -> tuple[RunnerSlots, list[Attempt]]:
        """What a trip claimed is in hand from now on."""
        assert flight.lane is not None
        others = self._but_suspects(self._but_held(claimed), flight.departed)
        attempts = self._attempts(flight.lane, others, flight.departed, leased=flight.departed)
        flight.unsure = False
        return flight.lane, attempts

    def _but_held(self, claimed: Claimed) -> list[ClaimedJob]:
        """Give back as held what a pause by filter means; returns the other jobs."""
        free, held = self._filter_pauses.split(claimed.jobs, claimed.filter_version)
        if held:
            self.limit = None if self.limit is None else self.limit + len(held)
            self.ends.outcomes += held
        return free

    def _but_suspects(self, jobs: list[ClaimedJob], leased: float = 0.0) -> list[ClaimedJob]:
        """Start the suspects among these, each in a process of its own; returns the other jobs. As many suspects as can
        run may wait for a process; more are given back. So are those on their last attempt: if this worker died
        meanwhile, they would fail without having begun. A worker without such processes runs a suspect among its other
        jobs, but one at a time: if it dies of it, no other suspect is in hand to be charged for that."""
        suspects = [job for job in jobs if runs_isolated(job.suspicion)]
        if not suspects:
            return jobs
        now, others = time.monotonic(), suspects
        if self._solo is not None:
            runner = self._solo.runner
            free, room = (max(0, slots - runner.busy) for slots in (runner.slots, 2 * runner.slots))
            patient = [job for job in suspects[free:] if job.attempt < job.max_attempts]
            taken = suspects[:free] + patient[: room - free]
            runner.start(self._attempts(self._solo, taken, leased, leased=leased))
            others = [job for job in suspects if job not in taken]
            self._give_back(others, self._turns.delays(len(others), now))
        elif len(suspects) == 1 and not any(runs_isolated(a.held.suspicion) for a in self._hand.attempts()):
            return jobs
        else:  # the first comes again at once, alone: the others are not due then
            self._give_back(others, [0.0, *self._turns.delays(len(others) - 1, now)])
        return [job for job in jobs if not runs_isolated(job.suspicion)]

    def _give_back(self, jobs: Sequence[ClaimedJob], delays: Iterable[float] = repeat(0.0)) -> None:
        """Release these, which have not begun."""
        self.limit = None if self.limit is None else self.limit + len(jobs)
        self.ends.outcomes += [
            given_back(held, started=False, delay=delay) for held, delay in zip(jobs, delays, strict=False)
        ]

    def _plan(self, flight: Flight, claimed: Claimed) -> None:
        """What a trip claimed tells when to look again."""
        wants, lane = flight.wants, flight.lane
        assert wants is not None
        assert lane is not None
        if claimed.jobs:
            lane.pace.weigh(len(claimed.jobs), sum([len(job.args) for job in claimed.jobs]))
            self.nothing_due = False
            self.poller.found()
            self._doubt.found()
            if self.limit is not None:
                self.limit -= len(claimed.jobs)
            self._telling.claimed(claimed.jobs)
        self.meters.last_poll = time.monotonic()
        lane.passed = claimed.passed
        lane.found(claimed.jobs)
        if claimed.more and not claimed.jobs:
            # All that is due is locked by others, perhaps for long: again soon, but not at once.
            self.nothing_due = False
            self._doubt.found()
            self._look_at = time.monotonic() + CONTENDED
            return
        full = claimed.passed or len(claimed.jobs) == wants.limit + wants.ahead
        if full or claimed.more:
            self.nothing_due = False
            lane.look = True
            if claimed.jobs and not flight.outcomes:
                self._wake_others(claimed.jobs)
            return
        if claimed.jobs and not self.poller.listening:
            lane.look = True  # polling: again at once while there is work and room
            return
        if wants.told:
            self.nothing_due = False
            if claimed.jobs or not lane.in_reserve:
                self._look_within(ONCE_MORE)  # at all lanes
            return
        wait = self.poller.wait(self._due(claimed.next_due))
        if claimed.jobs:
            wait = ONCE_MORE if wait is None else min(wait, ONCE_MORE)
        if wait is not None:
            self._look_within(wait)
        if not claimed.jobs:
            events.emit("polled", empty_polls=self.poller.empty_polls, wait=wait or 0.0)

    def _wake_others(self, jobs: Sequence[ClaimedJob]) -> None:
        """An idle worker is full at once, and there may be more. Unless all were woken just now, they should know."""
        if self._place.count == 1 or time.monotonic() < self._all_woken + ALL_KNOW:
            return
        if len(jobs) == 1:
            self._store.hint(jobs[0].queue, (jobs[0].task, jobs[0].priority))
        else:
            self._store.notify({job.queue for job in jobs})

    def _due(self, seconds: float | None) -> float | None:
        """When to look for the next job that falls due. Only a few workers keep that in mind; if it is news, they are
        told."""
        passes_on, self._passes_on = self._passes_on, False
        if seconds is None or not self.poller.listening:
            return seconds
        mine = self._place.due(seconds)
        if mine is None and passes_on:
            self._store.hint("", due_in=seconds)
        return mine

    def _look_within(self, seconds: float) -> None:
        at = time.monotonic() + seconds
        self._look_at = at if self._look_at is None else min(at, self._look_at)

    def _attempts(
        self, lane: RunnerSlots, jobs: Sequence[ClaimedJob], asked: float, leased: float = 0.0
    ) -> list[Attempt]:
        """`asked`: when we went to fetch them (monotonic). The database said then or later how long they may wait."""
        now, timeouts = time.monotonic(), self._timeouts
        attempts = [Attempt(held, timeouts[held.task], now, lane.number, leased=leased) for held in jobs]
        for attempt in attempts:
            if attempt.held.expires_in is not None:
                attempt.begin_by = asked + attempt.held.expires_in
        lane.runner.busy += len(attempts)
        self._hand.take(attempts)
        return attempts

    def _recover(self) -> None:
        """A commit's reply was lost: did that claim happen? Then its jobs are ours to run, or to give back."""
        fence, asked = self._unknown[0], time.monotonic()
        claimed = self._store.claim_of(fence)
        known = [held for held in claimed.jobs if self._hand.get(held.id, held.fence) is None]
        free = self._but_held(replace(claimed, jobs=known))
        self._unknown.pop(0)
        self.limit = None if self.limit is None else max(0, self.limit - len(known))
        for held in free:
            self._start(held, asked)

    def _start(self, held: ClaimedJob, asked: float) -> None:
        """Run what was claimed for us, unless we stop: then it is given back."""
        if not self.claiming:
            self.ends.outcomes.append(given_back(held, started=False))
        elif self._but_suspects([held]):
            lane = self._lane_of[held.task]
            lane.runner.start(self._attempts(lane, [held], asked))
