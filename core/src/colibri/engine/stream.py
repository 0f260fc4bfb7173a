"""One request's frames on the gateway's side, from submission to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ..errors import BadRequest, ColibriError, EngineError, Unavailable
from .frames import Accept, Done, Error, Tokens

OnEnd = Callable[[], None]


class Stream:
    """Accept, then Tokens, then Done, for one reader; a failure is raised after the tokens that came before it.

    Tokens that the reader has not fetched are merged, so a stream never holds more than its own request's tokens,
    however slow the reader, and no other request waits for it.
    """

    def __init__(self, id: int, on_end: OnEnd | None = None) -> None:
        self.id = id
        self._on_end = on_end
        self._accept: Accept | None = None
        self._accepted = False
        self._ids: list[int] = []
        self._end: Done | ColibriError | None = None
        self._spent = False
        self._news = asyncio.Event()

    # The engine's end.

    def put(self, frame: Accept | Tokens | Done | Error) -> None:
        """Take a frame of this request. Frames after the end are ignored; so is a second Accept."""
        if self._end is not None:
            return
        if isinstance(frame, Tokens):
            self._ids += frame.ids
        elif isinstance(frame, Accept):
            if not self._accepted:
                self._accept, self._accepted = frame, True
        elif isinstance(frame, Done):
            self._finish(frame)
        else:
            self._finish(raised(frame))
        self._news.set()

    def fail(self, error: ColibriError) -> None:
        """End with an error that is not the engine's word."""
        if self._end is None:
            self._finish(error)
            self._news.set()

    def _finish(self, end: Done | ColibriError) -> None:
        self._end = end
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()

    @property
    def ended(self) -> bool:
        """Whether the engine has let go of the request."""
        return self._end is not None

    # The reader's end.

    def __aiter__(self) -> AsyncIterator[Accept | Tokens | Done]:
        return self

    async def __anext__(self) -> Accept | Tokens | Done:
        while True:
            if self._accept is not None:
                accept, self._accept = self._accept, None
                return accept
            if self._ids:
                ids, self._ids = self._ids, []
                return Tokens(self.id, ids)
            if self._end is not None:
                if self._spent:
                    raise StopAsyncIteration
                self._spent = True
                if isinstance(self._end, ColibriError):
                    raise self._end
                return self._end
            self._news.clear()
            await self._news.wait()


def raised(frame: Error) -> ColibriError:
    """An Error frame as the exception it becomes."""
    if 400 <= frame.status < 500:
        return BadRequest(frame.message, code=frame.code, param=frame.param, status=frame.status)
    if frame.status == 503:
        return Unavailable(frame.message, code=frame.code, headers=(("Retry-After", "1"),))
    return EngineError(frame.message, code=frame.code, status=frame.status)
