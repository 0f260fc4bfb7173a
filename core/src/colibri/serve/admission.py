"""Who gets which slot, and when: the rules of the waiting line, without a clock or an event loop of its own.

Times are seconds of any monotonic clock and come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ..errors import ColibriError, Overloaded, Unavailable

#: Chooses one of the free slots (never empty) for a request that any slot suits.
Prefer = Callable[[Sequence[int]], int]

Outcome = Literal["completed", "failed", "cancelled"]


def lowest(free: Sequence[int]) -> int:
    """The first free slot."""
    return free[0]


class Ticket:
    """A request's place: waiting (`slot` and `error` None), admitted to `slot`, or refused with `error`."""

    def __init__(self, pinned: int | None, prefer: Prefer, arrived: float, deadline: float) -> None:
        self.pinned = pinned
        self.prefer = prefer
        self.arrived = arrived
        self.deadline = deadline
        self.slot: int | None = None
        self.error: ColibriError | None = None
        self.waited = 0.0
        self.on_settled: Callable[[], None] = lambda: None

    @property
    def settled(self) -> bool:
        """Whether it waits no more."""
        return self.slot is not None or self.error is not None


class Counters:
    """What has happened since the start, in requests."""

    def __init__(self) -> None:
        self.admitted = self.completed = self.failed = 0
        self.rejected = self.timed_out = self.cancelled = 0


class Line:
    """A bounded first-come line in front of `capacity` slots.

    A request may ask for one slot (pinned) or suit any. A pinned waiter keeps its slot from those behind it; a waiter
    that suits any keeps all of them. What can take a slot at once never counts as waiting. Deadlines come before slots:
    an expired waiter is refused even if a slot is free by now.
    """

    def __init__(self, capacity: int, max_waiting: int, timeout: float) -> None:
        self.capacity, self.max_waiting, self.timeout = capacity, max_waiting, timeout
        self.counters = Counters()
        self.open = True
        self._free = set(range(capacity))
        self._waiting: list[Ticket] = []
        self._closed: ColibriError | None = None

    @property
    def active(self) -> int:
        """Slots in use."""
        return self.capacity - len(self._free)

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def enter(self, pinned: int | None, prefer: Prefer, now: float) -> Ticket:
        """A new request: admitted, refused (queue_full, or closed), or waiting."""
        ticket = Ticket(pinned, prefer, now, now + self.timeout)
        if self._closed is not None:
            ticket.error = self._closed
            return ticket
        self._waiting.append(ticket)
        self.advance(now)
        if not ticket.settled and self.waiting > self.max_waiting:
            self._waiting.remove(ticket)
            self.counters.rejected += 1
            ticket.error = self._full(pinned)
        return ticket

    def advance(self, now: float) -> None:
        """Refuse whoever waited too long, then give free slots away."""
        for ticket in [ticket for ticket in self._waiting if ticket.deadline <= now]:
            self._waiting.remove(ticket)
            self.counters.timed_out += 1
            message = f"No slot became free in {self.timeout:g} seconds. Try again later, or raise --queue-timeout."
            self._refuse(ticket, Overloaded(message, code="queue_timeout"))
        if not self.open:
            return
        reserved: set[int] = set()
        for ticket in list(self._waiting):
            free = sorted(self._free - reserved)
            if ticket.pinned is None:
                if not free:
                    break
                self._admit(ticket, ticket.prefer(free), now)
            elif ticket.pinned in free:
                self._admit(ticket, ticket.pinned, now)
            else:
                reserved.add(ticket.pinned)

    def next_deadline(self) -> float | None:
        """When `advance` has to be called at the latest, because a waiter gives up then."""
        return min((ticket.deadline for ticket in self._waiting), default=None)

    def leave(self, ticket: Ticket, now: float) -> None:
        """A waiting request is gone. Those it held up may go on."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
            self.counters.cancelled += 1
            self.advance(now)

    def release(self, slot: int, now: float) -> None:
        """A slot is free again."""
        if slot in self._free:
            raise ValueError(f"slot {slot} is free already")
        self._free.add(slot)
        self.advance(now)

    def count(self, outcome: Outcome) -> None:
        """Note how an admitted request ended."""
        setattr(self.counters, outcome, getattr(self.counters, outcome) + 1)

    def close(self, error: ColibriError | None = None) -> None:
        """Refuse all that wait and all that come."""
        self._closed = error or Unavailable("The server is shutting down.", code="scheduler_closed")
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            self._refuse(ticket, self._closed)

    def _admit(self, ticket: Ticket, slot: int, now: float) -> None:
        if slot not in self._free:
            raise ValueError(f"slot {slot} is not free")
        self._waiting.remove(ticket)
        self._free.remove(slot)
        self.counters.admitted += 1
        ticket.slot, ticket.waited = slot, now - ticket.arrived
        ticket.on_settled()

    def _refuse(self, ticket: Ticket, error: ColibriError) -> None:
        ticket.error = error
        ticket.on_settled()

    def _full(self, pinned: int | None) -> Overloaded:
        busy = f"Slot {pinned} is in use" if pinned is not None else f"All {self.capacity} slots are in use"
        return Overloaded(f"{busy} and {self.waiting} requests wait already (--max-queue). Try again later.")
