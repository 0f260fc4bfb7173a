"""The waiting line on an event loop: requests await a slot, a timer watches the deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..errors import ColibriError
from .admission import Line, Outcome, Prefer, Ticket, lowest


class Lease:
    """A slot that is held. It is given back, and the request's outcome counted, once each, whoever says so first."""

    def __init__(self, slot: int, waited: float, release: Callable[[int], None], count: Callable[[Outcome], None]) -> None:
        self.slot, self.waited = slot, waited
        self._release: Callable[[int], None] | None = release
        self._count: Callable[[Outcome], None] | None = count

    def release(self) -> None:
        """The engine is done with the slot."""
        if self._release is not None:
            release, self._release = self._release, None
            release(self.slot)

    def settle(self, outcome: Outcome) -> None:
        """How the request ended."""
        if self._count is not None:
            count, self._count = self._count, None
            count(outcome)


class Place:
    """A request's place in the line."""

    def __init__(self, scheduler: Scheduler, ticket: Ticket) -> None:
        self._scheduler = scheduler
        self._ticket = ticket
        self._settled = asyncio.Event()
        self._taken = False
        if ticket.settled:
            self._settled.set()
        else:
            ticket.on_settled = self._settled.set

    async def lease(self) -> Lease:
        """Wait for the slot. Raises Overloaded (refused, or waited too long) or Unavailable (closed).

        A caller that is cancelled leaves the line.
        """
        try:
            await self._settled.wait()
        except asyncio.CancelledError:
            self.leave()
            raise
        if self._ticket.error is not None:
            raise self._ticket.error
        assert self._ticket.slot is not None
        self._taken = True
        return self._scheduler.lease(self._ticket)

    def leave(self) -> None:
        """Wait no more, or give back the slot that nobody took yet. Does nothing once the lease is handed out."""
        if not self._taken and self._ticket.error is None:
            self._ticket.error = ColibriError("The request was cancelled.", code="cancelled", status=499)
            self._scheduler.leave(self._ticket)
            self._settled.set()


class Scheduler:
    """Admits requests to slots, first come first served; see `Line` for the rules."""

    def __init__(self, capacity: int, max_queue: int, timeout: float) -> None:
        self._line = Line(capacity, max_queue, timeout)
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, slot: int | None = None, prefer: Prefer = lowest) -> Place:
        """Ask for `slot`, or for any that is free, chosen by `prefer`."""
        place = Place(self, self._line.enter(slot, prefer, _now()))
        self._watch()
        return place

    def lease(self, ticket: Ticket) -> Lease:
        """The slot of an admitted ticket, to be given back."""
        assert ticket.slot is not None
        return Lease(ticket.slot, ticket.waited, self._release, self._line.count)

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of the line, admitted or not."""
        if ticket.slot is not None:
            self._line.count("cancelled")
            self._line.release(ticket.slot, _now())
        else:
            self._line.leave(ticket, _now())
        self._watch()

    def pause(self) -> None:
        """Admit nobody for now; the line and its deadlines go on."""
        self._line.open = False

    def resume(self) -> None:
        """Admit again."""
        self._line.open = True
        self._advance()

    def close(self, error: ColibriError | None = None) -> None:
        """Refuse everybody from now on, with `error` or as closed."""
        self._line.close(error)
        self._watch()

    def snapshot(self) -> dict[str, int | float]:
        """The numbers for /health."""
        line = self._line
        return {
            "active": line.active,
            "queued": line.waiting,
            "capacity": line.capacity,
            "max_queue": line.max_waiting,
            "queue_timeout_seconds": line.timeout,
            **vars(line.counters),
        }

    def _release(self, slot: int) -> None:
        self._line.release(slot, _now())
        self._watch()

    def _advance(self) -> None:
        self._line.advance(_now())
        self._watch()

    def _watch(self) -> None:
        """Set the timer to the next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._line.next_deadline()
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._advance)


def _now() -> float:
    return asyncio.get_running_loop().time()
