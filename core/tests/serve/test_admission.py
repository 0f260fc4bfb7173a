"""The waiting line: its rules one by one, and all of them over any sequence of events."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from colibri.errors import EngineError
from colibri.serve.admission import Line, Ticket, lowest

TIMEOUT = 10.0


def enter(line: Line, pinned: int | None = None, now: float = 0.0) -> Ticket:
    return line.enter(pinned, lowest, now)


def code(ticket: Ticket) -> str | None:
    return None if ticket.error is None else ticket.error.code


def test_a_full_line_takes_no_more() -> None:
    line = Line(1, 1, TIMEOUT)
    assert enter(line).slot == 0
    waiting, refused = enter(line), enter(line)
    assert not waiting.settled
    assert code(refused) == "queue_full"
    assert refused.error is not None
    assert refused.error.status == 429
    assert ("Retry-After", "1") in refused.error.headers
    assert (line.active, line.waiting, line.counters.rejected) == (1, 1, 1)


def test_without_a_line_a_busy_pin_is_refused_though_another_slot_is_free() -> None:
    line = Line(2, 0, TIMEOUT)
    assert enter(line, 0).slot == 0
    assert code(enter(line, 0)) == "queue_full"
    assert enter(line, 1).slot == 1


def test_a_full_line_does_not_keep_out_who_can_go_at_once() -> None:
    line = Line(2, 1, TIMEOUT)
    enter(line, 0)
    enter(line, 0)
    assert code(enter(line, 0)) == "queue_full"
    assert enter(line).slot == 1


def test_first_come_first_served() -> None:
    line = Line(1, 5, TIMEOUT)
    enter(line)
    waiters = [enter(line, pinned, 1.0 + pinned) for pinned in (0, 0, 0)]
    for number, waiter in enumerate(waiters):
        line.release(0, 5.0)
        assert [w.slot for w in waiters] == [0] * (number + 1) + [None] * (2 - number)
        assert waiter.waited == 4.0


def test_an_earlier_pin_keeps_its_slot_from_later_requests() -> None:
    line = Line(2, 5, TIMEOUT)
    line.open = False
    pinned, anywhere = enter(line, 0), enter(line)
    line.open = True
    line.advance(0.0)
    assert (pinned.slot, anywhere.slot) == (0, 1)


def test_an_earlier_request_for_any_slot_keeps_all_of_them() -> None:
    line = Line(2, 5, TIMEOUT)
    enter(line), enter(line)
    anywhere, pinned = enter(line), enter(line, 1)
    line.release(1, 1.0)
    assert (anywhere.slot, pinned.slot) == (1, None)


@pytest.mark.parametrize(("freed", "expired"), [(0.9, False), (1.0, True), (1.1, True)])
def test_deadlines_come_before_slots(freed: float, expired: bool) -> None:
    line = Line(1, 1, 1.0)
    enter(line)
    waiter = enter(line)
    assert line.next_deadline() == 1.0
    line.release(0, freed)
    assert (code(waiter) == "queue_timeout") is expired
    assert (waiter.slot == 0) is not expired
    assert line.counters.timed_out == expired
    assert line.active == (not expired)


def test_who_leaves_makes_room_for_those_behind() -> None:
    line = Line(2, 5, TIMEOUT)
    enter(line, 0), enter(line, 1)
    anywhere, pinned = enter(line), enter(line, 1)
    line.open = False
    line.release(1, 1.0)
    line.open = True
    line.leave(anywhere, 1.0)
    assert pinned.slot == 1
    assert line.counters.cancelled == 1
    line.leave(anywhere, 1.0)
    assert line.counters.cancelled == 1


def test_a_closed_line() -> None:
    line = Line(1, 5, TIMEOUT)
    enter(line)
    waiter = enter(line)
    line.close()
    assert code(waiter) == "scheduler_closed"
    assert code(enter(line)) == "scheduler_closed"
    assert waiter.error is not None
    assert waiter.error.status == 503
    line.close(EngineError("gone"))
    assert code(enter(line)) == "engine_error"


def test_a_line_on_hold_keeps_its_deadlines() -> None:
    line = Line(1, 5, 1.0)
    line.open = False
    first, second = enter(line), enter(line, now=0.5)
    line.advance(1.0)
    assert (code(first), second.settled) == ("queue_timeout", False)
    line.open = True
    line.advance(1.2)
    assert second.slot == 0


def test_the_caller_chooses_among_free_slots() -> None:
    line = Line(4, 0, TIMEOUT)
    enter(line, 1)
    offered: list[list[int]] = []

    def highest(free: object) -> int:
        offered.append(list(free))  # type: ignore[call-overload]
        return offered[-1][-1]

    assert line.enter(None, highest, 0.0).slot == 3
    assert offered == [[0, 2, 3]]


class Lines(RuleBasedStateMachine):
    """Any sequence of arrivals, ends, departures, pauses and time."""

    @initialize(capacity=st.integers(1, 3), max_waiting=st.integers(0, 4))
    def start(self, capacity: int, max_waiting: int) -> None:
        self.line = Line(capacity, max_waiting, TIMEOUT)
        self.now = 0.0
        self.tickets: list[Ticket] = []  # all that were let in or wait, by arrival
        self.running: list[Ticket] = []
        self.waiting: list[Ticket] = []
        self.counts = {"admitted": 0, "rejected": 0, "timed_out": 0, "cancelled": 0}

    @rule(pinned=st.none() | st.integers(0, 2))
    def arrive(self, pinned: int | None) -> None:
        if pinned is not None:
            pinned %= self.line.capacity
        could = self.could_go([*self.waiting, Ticket(pinned, lowest, self.now, self.now + TIMEOUT)])
        ticket = self.line.enter(pinned, lowest, self.now)
        if ticket.error is not None:
            assert ticket.error.code == "queue_full"
            assert not could
            assert len(self.waiting) == self.line.max_waiting
            self.counts["rejected"] += 1
        else:
            assert ticket.settled == could
            self.waiting.append(ticket)
        self.settle()

    def could_go(self, waiting: list[Ticket]) -> bool:
        """Whether the last of `waiting`, none of whom can go now but perhaps it, can."""
        if not self.line.open:
            return False
        *earlier, last = waiting
        free = set(range(self.line.capacity)) - {ticket.slot for ticket in self.running}
        if any(ticket.pinned is None for ticket in earlier):
            return False
        free -= {ticket.pinned for ticket in earlier}
        return bool(free) if last.pinned is None else last.pinned in free

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 99))
    def finish(self, which: int) -> None:
        ticket = self.running.pop(which % len(self.running))
        assert ticket.slot is not None
        self.line.release(ticket.slot, self.now)
        self.settle()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 99))
    def leave(self, which: int) -> None:
        self.line.leave(self.waiting.pop(which % len(self.waiting)), self.now)
        self.counts["cancelled"] += 1
        self.settle()

    @rule(seconds=st.sampled_from([0.5, 3.0, 9.5, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.line.advance(self.now)
        self.settle()

    @rule()
    def pause(self) -> None:
        self.line.open = False

    @rule()
    def resume(self) -> None:
        self.line.open = True
        self.line.advance(self.now)
        self.settle()

    def settle(self) -> None:
        """Take note of what has been decided; nobody is passed by."""
        still: list[Ticket] = []
        for ticket in self.waiting:
            if ticket.error is not None:
                assert ticket.error.code == "queue_timeout"
                assert ticket.deadline <= self.now
                self.counts["timed_out"] += 1
            elif ticket.slot is not None:
                assert ticket.deadline > self.now
                assert ticket.pinned in (None, ticket.slot)
                assert ticket.slot not in [other.slot for other in self.running]
                assert all(other.pinned not in (None, ticket.slot) for other in still), "an earlier waiter was passed by"
                self.running.append(ticket)
                self.counts["admitted"] += 1
            else:
                still.append(ticket)
        self.waiting = still

    @invariant()
    def adds_up(self) -> None:
        line = self.line
        assert (line.active, line.waiting) == (len(self.running), len(self.waiting))
        assert line.waiting <= line.max_waiting
        assert {name: getattr(line.counters, name) for name in self.counts} == self.counts
        assert line.next_deadline() == min((ticket.deadline for ticket in self.waiting), default=None)

    @invariant()
    def nobody_waits_without_reason(self) -> None:
        for number in range(len(self.waiting)):
            assert not self.could_go(self.waiting[: number + 1])


Lines.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestLines = Lines.TestCase
