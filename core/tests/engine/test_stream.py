"""One request's frames, however late they are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from colibri.engine.frames import Accept, Done, Error, Tokens
from colibri.engine.stream import Stream, raised
from colibri.errors import BadRequest, ColibriError, EngineError, Unavailable

ACCEPT = Accept(1, 0, 3, 0, 5)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_late_reader_gets_everything_merged() -> None:
    async def test() -> None:
        ended: list[int] = []
        stream = Stream(1, lambda: ended.append(1))
        frames: list[Any] = [ACCEPT, Tokens(1, [1]), Tokens(1, [2, 3]), Done(1, "stop"), Tokens(1, [4]), Done(1, "length")]
        for frame in frames:
            stream.put(frame)
        assert stream.ended
        assert ended == [1]
        assert [frame async for frame in stream] == [ACCEPT, Tokens(1, [1, 2, 3]), Done(1, "stop")]
        assert [frame async for frame in stream] == []

    run(test)


def test_a_reader_that_keeps_up() -> None:
    async def test() -> None:
        stream = Stream(1)
        read: list[Any] = []

        async def reader() -> None:
            async for frame in stream:
                read.append(frame)

        task = asyncio.ensure_future(reader())
        frames: list[Any] = [ACCEPT, Tokens(1, [1]), Tokens(1, [2]), Done(1, "stop")]
        for number, frame in enumerate(frames):
            stream.put(frame)
            for _ in range(3):
                await asyncio.sleep(0)
            assert read == frames[: number + 1]
        await task

    run(test)


def test_an_error_comes_after_the_tokens_before_it() -> None:
    async def test() -> None:
        for said in (True, False):
            stream = Stream(1)
            stream.put(Tokens(1, [1]))
            if said:
                stream.put(Error(1, "c", "boom"))
            else:
                stream.fail(EngineError("boom"))
            stream.fail(EngineError("later"))
            assert await anext(stream) == Tokens(1, [1])
            with pytest.raises(EngineError, match="boom"):
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    run(test)


@pytest.mark.parametrize(
    ("frame", "kind", "status"),
    [
        (Error(1, "context_length_exceeded", "m", 400, "messages"), BadRequest, 400),
        (Error(1, "slot_busy", "m", 503), Unavailable, 503),
        (Error(1, "engine_error", "m"), EngineError, 500),
    ],
)
def test_errors_as_exceptions(frame: Error, kind: type[ColibriError], status: int) -> None:
    error = raised(frame)
    assert type(error) is kind
    assert (error.message, error.code, error.param, error.status) == ("m", frame.code, frame.param, status)
