"""The waiting line on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from colibri.errors import ColibriError, Overloaded, Unavailable
from colibri.serve.scheduler import Lease, Scheduler


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


async def lease(scheduler: Scheduler, slot: int | None = None) -> Lease:
    return await scheduler.enter(slot).lease()


def test_waiting_and_getting() -> None:
    async def test() -> None:
        scheduler = Scheduler(1, 2, 10)
        first = await lease(scheduler)
        waiting = [asyncio.ensure_future(lease(scheduler)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await lease(scheduler)
        for waiter in waiting:
            first.release()
            first.release()  # once more changes nothing
            first.settle("completed")
            first.settle("failed")
            first = await waiter
            assert first.slot == 0
        numbers = scheduler.snapshot()
        assert (numbers["active"], numbers["queued"], numbers["admitted"]) == (1, 0, 3)
        assert (numbers["completed"], numbers["failed"], numbers["rejected"]) == (2, 0, 1)

    run(test)


def test_deadlines_need_no_other_event() -> None:
    async def test() -> None:
        scheduler = Scheduler(1, 2, 0.01)
        await lease(scheduler)
        with pytest.raises(Overloaded) as caught:
            await lease(scheduler)
        assert caught.value.code == "queue_timeout"
        assert scheduler.snapshot()["timed_out"] == 1

    run(test)


def test_a_cancelled_waiter_is_gone() -> None:
    async def test() -> None:
        scheduler = Scheduler(1, 2, 10)
        first = await lease(scheduler)
        waiter, other = (asyncio.ensure_future(lease(scheduler)) for _ in range(2))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert scheduler.snapshot()["queued"] == 1
        first.release()
        assert (await other).slot == 0
        assert scheduler.snapshot()["cancelled"] == 1

    run(test)


def test_a_waiter_cancelled_as_it_is_admitted_gives_the_slot_back() -> None:
    async def test() -> None:
        scheduler = Scheduler(1, 2, 10)
        first = await lease(scheduler)
        waiter = asyncio.ensure_future(lease(scheduler))
        await asyncio.sleep(0)
        first.release()
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert scheduler.snapshot()["active"] == 0
        assert (await lease(scheduler)).slot == 0

    run(test)


def test_leaving() -> None:
    async def test() -> None:
        scheduler = Scheduler(1, 2, 10)
        place = scheduler.enter()
        place.leave()  # before anybody took the slot
        assert scheduler.snapshot()["active"] == 0
        with pytest.raises(ColibriError, match="cancelled"):
            await place.lease()
        held = await lease(scheduler)
        place = scheduler.enter()
        waiting = asyncio.ensure_future(place.lease())
        await asyncio.sleep(0)
        place.leave()
        place.leave()
        with pytest.raises(ColibriError, match="cancelled"):
            await waiting
        assert scheduler.snapshot()["cancelled"] == 2
        held.release()
        place = scheduler.enter()
        await place.lease()
        place.leave()  # the lease is out: only it can give the slot back
        assert scheduler.snapshot()["active"] == 1

    run(test)


def test_pause_resume_close() -> None:
    async def test() -> None:
        scheduler = Scheduler(1, 2, 10)
        scheduler.pause()
        first, second = (asyncio.ensure_future(lease(scheduler)) for _ in range(2))
        await asyncio.sleep(0)
        assert scheduler.snapshot()["queued"] == 2
        scheduler.resume()
        await first
        scheduler.close()
        with pytest.raises(Unavailable) as caught:
            await second
        assert caught.value.code == "scheduler_closed"
        with pytest.raises(Unavailable):
            await lease(scheduler)

    run(test)
