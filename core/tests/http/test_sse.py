"""Streams: keepalives in silence, and an end for every failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from colibri.api.message import Stream
from colibri.errors import ColibriError
from colibri.http.sse import pump

from .fake import until


class Wire:
    """Keeps frames; `writable` can be turned off."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.writable = True
        self.drained = 0

    def write(self, data: bytes) -> None:
        self.frames.append(data)

    async def drain(self) -> None:
        self.drained += 1
        self.writable = True


def stream(chunks: AsyncGenerator[bytes, None]) -> Stream:
    return Stream(chunks, b"keepalive", lambda error: f"error: {error.message}".encode(), lambda: None)


async def _steps(*steps: Any) -> AsyncGenerator[bytes, None]:
    for step in steps:
        if isinstance(step, Exception):
            raise step
        elif isinstance(step, asyncio.Event):
            await step.wait()
        else:
            yield step


def test_frames_go_out_as_they_come_and_a_full_wire_is_waited_for() -> None:
    wire = Wire()
    wire.writable = False
    asyncio.run(pump(stream(_steps(b"a", b"b")), wire, 10))
    assert wire.frames == [b"a", b"b"]
    assert wire.drained == 1


def test_silence_is_filled_and_only_silence() -> None:
    async def main() -> None:
        wire, gate = Wire(), asyncio.Event()
        task = asyncio.create_task(pump(stream(_steps(b"a", gate, b"b")), wire, 0.002))
        await until(lambda: wire.frames.count(b"keepalive") >= 3)
        gate.set()
        await task
        assert wire.frames[0] == b"a"
        assert wire.frames[-1] == b"b"
        assert set(wire.frames) == {b"a", b"b", b"keepalive"}
        count = len(wire.frames)
        await asyncio.sleep(0.01)
        assert len(wire.frames) == count

    asyncio.run(main())


def test_no_keepalive_piles_up_before_a_reader_that_does_not_read() -> None:
    async def main() -> None:
        wire, gate = Wire(), asyncio.Event()
        task = asyncio.create_task(pump(stream(_steps(b"a", gate)), wire, 0.001))
        await asyncio.sleep(0)
        wire.writable = False
        await asyncio.sleep(0.02)
        gate.set()
        await task
        assert wire.frames == [b"a"]

    asyncio.run(main())


def test_failures_end_the_stream_in_its_own_way() -> None:
    wire = Wire()
    asyncio.run(pump(stream(_steps(b"a", ColibriError("the engine died"))), wire, 10))
    assert wire.frames == [b"a", b"error: the engine died"]


def test_unexpected_failures_tell_nothing(caplog: Any) -> None:
    wire = Wire()
    asyncio.run(pump(stream(_steps(b"a", KeyError("secret"))), wire, 10))
    assert len(wire.frames) == 2
    assert b"secret" not in wire.frames[1]
    assert "secret" in caplog.text
