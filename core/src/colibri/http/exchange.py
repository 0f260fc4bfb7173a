"""One request and its answer."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import msgspec

from ..api.message import Headers, Reply, Request, Stream
from ..errors import ColibriError
from .coding import decode_body
from .head import response_head
from .sse import SSE_HEADERS, pump

if TYPE_CHECKING:
    from .connection import Connection
    from .routing import Match

access = logging.getLogger("colibri.access")


class Exchange:
    """Collects a request's body, then answers it. Owned by a Connection, which starts them one after the other."""

    def __init__(self, connection: Connection, request: Request, *, keep_alive: bool, chunked: bool) -> None:
        self.keep_alive = keep_alive
        self.complete = False
        self.expected = False  # The client waits for a 100 before it sends the body.
        self.refused: ColibriError | None = None
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._dispatch = connection.dispatch
        self._request = connection.dispatch.identify(request)
        self._chunked = chunked
        self._match: Match | None = None
        self._body: list[bytes] = []

    def check(self) -> None:
        """Judge the request by its head."""
        try:
            self._match = self._dispatch.check(self._request)
        except ColibriError as error:
            self.refused = error

    def receive(self, data: bytes) -> None:
        """Keep a piece of the body. The body of a refused request is read but not kept."""
        if self.refused is None:
            self._body.append(data)

    def fail(self, error: ColibriError) -> None:
        """The rest of this request can't be read: answer `error`, then close."""
        self.refused = error
        self.complete = True
        self.keep_alive = False

    def start(self) -> None:
        """Answer, in a task of its own."""
        self.task = self._connection.loop.create_task(self._run())
        self._connection.traffic.answers.add(self.task)
        self.task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Nobody reads the answer any more."""
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        began = time.monotonic()
        answer = await self._answer()
        if isinstance(answer, Stream):
            await self._send_stream(answer)
            status = 200
        else:
            self._send_reply(answer)
            status = answer.status
            await self._connection.flow.drain()
        if access.isEnabledFor(logging.INFO):
            request, spent = self._request, (time.monotonic() - began) * 1000
            access.info("%s %s %d %.0f ms %s", request.method, request.path, status, spent, request.id)

    async def _answer(self) -> Reply | Stream:
        if self.refused is None and self._match is not None:
            coding = self._request.headers.get("content-encoding", "")
            try:
                body = decode_body(b"".join(self._body), coding, self._connection.limits.body_bytes)
            except ColibriError as error:
                self.refused = error
            else:
                self._body.clear()
                return await self._dispatch.answer(msgspec.structs.replace(self._request, body=body), self._match)
        assert self.refused is not None
        return self._dispatch.refusal(self._request, self.refused, self._match.route if self._match else None)

    def _send_reply(self, reply: Reply) -> None:
        headers: Headers = (*self._dispatch.common_headers(self._request), *reply.headers)
        if reply.status != 204:
            kind = (("content-type", reply.content_type),) if reply.body else ()
            headers = (*kind, ("content-length", str(len(reply.body))), *headers)
        head = response_head(reply.status, (*headers, *self._connection_header()))
        self._connection.write(head if self._request.method == "HEAD" else head + reply.body)

    async def _send_stream(self, stream: Stream) -> None:
        # A stream's connection is not used again, as its clients expect; chunks still tell a cut from an end.
        self.keep_alive = False
        headers = (*SSE_HEADERS, *self._dispatch.common_headers(self._request), *stream.headers)
        framing = (("transfer-encoding", "chunked"),) if self._chunked else ()
        head = response_head(200, (*headers, *framing, ("connection", "close")))
        wire = _StreamWire(self._connection, head, self._chunked)
        try:
            await pump(stream, wire, self._connection.limits.keepalive_seconds)
            wire.end()
        finally:
            stream.close()

    def _connection_header(self) -> Headers:
        if not self.keep_alive:
            return (("connection", "close"),)
        # HTTP/1.0 clients close unless told that we won't.
        return () if self._chunked else (("connection", "keep-alive"),)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._connection.traffic.answers.discard(task)
        if task.cancelled():
            self._connection.abort()
        elif (error := task.exception()) is not None:
            access.error("an answer could not be sent", exc_info=error)
            self._connection.abort()
        self._connection.finished(self)


class _StreamWire:
    """A chunked body whose first chunk leaves together with the head."""

    def __init__(self, connection: Connection, head: bytes, chunked: bool) -> None:
        self._connection, self._head, self._chunked = connection, head, chunked

    @property
    def writable(self) -> bool:
        return self._connection.flow.writable

    def write(self, data: bytes) -> None:
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._connection.write(self._head + data)
        self._head = b""

    async def drain(self) -> None:
        await self._connection.flow.drain()

    def end(self) -> None:
        if self._head or self._chunked:
            self._connection.write(self._head + (b"0\r\n\r\n" if self._chunked else b""))
