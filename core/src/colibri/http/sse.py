"""Server-sent events: a stream of frames, kept alive through silence and ended well whatever happens."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Protocol

from ..api.message import FAILURE, Headers, Stream
from ..errors import ColibriError, EngineError

logger = logging.getLogger("colibri.http")

SSE_HEADERS: Headers = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    # Some reverse proxies collect a response before they pass it on unless told not to.
    ("x-accel-buffering", "no"),
)


class Wire(Protocol):
    """Where frames go."""

    @property
    def writable(self) -> bool:
        """Whether a write would be sent soon."""
        ...

    def write(self, data: bytes) -> None:
        """Send whole frames."""
        ...

    async def drain(self) -> None:
        """Wait until the client has taken what was written."""
        ...


class Pulse:
    """Writes `frame` whenever nothing else was written for `seconds`.

    One timer a stream, not one a frame: writing only notes the time, and the timer looks at it when it fires.
    """

    def __init__(self, wire: Wire, frame: bytes, seconds: float) -> None:
        self._wire, self._frame, self._seconds = wire, frame, seconds
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look)

    def beat(self) -> None:
        """Something was written now."""
        self._last = self._loop.time()

    def stop(self) -> None:
        """Write no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now - self._last >= self._seconds:
            if self._wire.writable:
                self._wire.write(self._frame)
            self._last = now
        self._timer = self._loop.call_later(max(self._last + self._seconds - now, 0.001), self._look)


async def pump(stream: Stream, wire: Wire, keepalive_seconds: float) -> None:
    """Send all of `stream`. A failure becomes the frames that end the stream in its protocol's way."""
    pulse = Pulse(wire, stream.keepalive, keepalive_seconds)
    try:
        async with aclosing(stream.chunks) as chunks:
            async for chunk in chunks:
                wire.write(chunk)
                pulse.beat()
                if not wire.writable:
                    await wire.drain()
    except ColibriError as error:
        logger.warning("a stream ended with an error: %s", error.message)
        wire.write(stream.failure(error))
    except Exception:
        logger.exception("a stream failed")
        wire.write(stream.failure(EngineError(FAILURE)))
    finally:
        pulse.stop()
