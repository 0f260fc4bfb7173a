"""One client connection: bytes in, exchanges in order, bytes out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import httptools

from ..api.message import Request
from ..errors import BadRequest, ColibriError, TooLarge
from .arrival import read_head
from .dispatch import Dispatch
from .exchange import Exchange
from .flow import Flow
from .limits import Limits
from .traffic import Traffic

logger = logging.getLogger("colibri.http")


class Connection(asyncio.Protocol):
    """HTTP/1.1 and 1.0 on one transport: keep-alive, pipelining, limits.

    An answer starts when its request has arrived whole and the answers before it are out. Bytes behind an unanswered
    pipelined request wait unparsed while reading goes on for a while, so that a client that hangs up is noticed.
    """

    def __init__(self, dispatch: Dispatch, limits: Limits, traffic: Traffic) -> None:
        # Of the server
        self.dispatch = dispatch
        self.limits = limits
        self.traffic = traffic
        self.loop = asyncio.get_running_loop()
        # Of the connection
        self.flow: Flow
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()
        self._backlog: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._alarm: Callable[[], None] | None = None  # What the timer will call.
        self._stall: asyncio.TimerHandle | None = None
        self._retiring = False
        self._deaf = False  # What still comes is discarded.
        self._lost = False
        # Of the request that is arriving
        self._fault: ColibriError | None = None
        self._incoming: Exchange | None = None
        self._begun = False
        self._since = 0.0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = 0
        self._body_size = 0

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.flow = Flow(self._transport)
        if len(self.traffic.connections) >= self.limits.connections:
            logger.warning("there are %d connections already: one more was turned away", self.limits.connections)
            self.abort()
            return
        self.traffic.connections.add(self)
        self._arm(self.limits.idle_seconds, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._deaf = True
        self.traffic.connections.discard(self)
        self._disarm()
        self._backlog.clear()
        self.resume_writing()
        while self._exchanges:
            # Only the first can have begun; it takes its leave in `finished`.
            self._exchanges.pop().cancel()

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self._stall = self.loop.call_later(self.limits.write_seconds, self.abort)

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if len(self._exchanges) > 1:
            self._backlog.append(data)
            if sum(map(len, self._backlog)) > self.limits.backlog_bytes:
                self.flow.pause_reading()
        else:
            self._feed(data)

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._begun = True
        self._since = self.loop.time()
        self._target = b""
        self._headers = []
        self._head_size = self._body_size = 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._measure_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))
        self._measure_head(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        if self._deaf or self._fault is not None or self._offered:
            return
        try:
            request = read_head(
                self._parser.get_method().decode("latin-1"), self._target, self._headers, self._parser.get_http_version()
            )
            self._open(request)
        except ColibriError as error:
            self._fault = error

    def on_body(self, data: bytes) -> None:
        if self._incoming is None or self._fault is not None:
            return
        self._body_size += len(data)
        if self._body_size > self.limits.body_bytes:
            self._fault = self._too_large()
        else:
            self._incoming.receive(data)

    def on_message_complete(self) -> None:
        self._begun = False
        if self._incoming is not None and self._fault is None:
            self._incoming.complete = True
            # After a request that closes, whatever follows is not a request.
            self._deaf = not self._incoming.keep_alive
            self._incoming = None

    # Exchanges and the server call these.

    def write(self, data: bytes) -> None:
        """Send bytes of the current exchange."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def finished(self, exchange: Exchange) -> None:
        """The answer of `exchange` is out, or will never be: go on with what came behind it."""
        if self._lost:
            return
        self._exchanges.remove(exchange)
        if not exchange.keep_alive or self._retiring:
            self._leave()
            return
        while self._backlog and len(self._exchanges) < 2 and not self._deaf:
            self._feed(self._backlog.popleft())
        if not self._backlog:
            self.flow.resume_reading()
        self._advance()

    def retire(self) -> None:
        """Take no further request; close once the answer under way is out."""
        self._retiring = True
        if self._exchanges and self._exchanges[0].complete:
            self._exchanges[0].keep_alive = False
        else:
            self.close()

    def close(self) -> None:
        """Close after what is written has been sent."""
        self._deaf = True
        self._disarm()
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._deaf = True
        self._disarm()
        self._transport.abort()

    # Requests

    def _feed(self, data: bytes) -> None:
        waiting = self._begun and self._incoming is None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._offered and self._fault is None:
                head = self._head_without_offer()
                self._parser = httptools.HttpRequestParser(self)
                self._feed(head + data[upgrade.args[0] :])
                return
        except httptools.HttpParserError as error:
            self._fault = self._fault or BadRequest(f"This can't be read as HTTP: {error}.", code="bad_request")
        if waiting and self._begun and self._incoming is None:
            # A header that never ends is not reported by the parser, only kept.
            self._measure_head(len(data))
        if self._fault is not None and not self._deaf:
            self._refuse(self._fault)
        self._advance()

    def _open(self, request: Request) -> None:
        """The head is complete: judge the request before its body comes."""
        chunked = self._parser.get_http_version() == "1.1"
        keep_alive = self._parser.should_keep_alive() and not self._retiring
        exchange = Exchange(self, request, keep_alive=keep_alive, chunked=chunked)
        self._exchanges.append(exchange)
        self._incoming = exchange
        exchange.check()
        if int(request.headers.get("content-length", 0)) > self.limits.body_bytes and exchange.refused is None:
            raise self._too_large()
        expect = request.headers.get("expect")
        if expect is None or not chunked:
            return
        if expect.lower() != "100-continue":
            raise BadRequest("The only Expect that can be met is 100-continue.", status=417, code="bad_request")
        if exchange.refused is not None:
            # The client waits for a word before it sends the body, and this is it.
            raise exchange.refused
        exchange.expected = True

    @property
    def _offered(self) -> bool:
        """Whether the client offers to go on in another protocol. CONNECT is no offer but a demand, and refused."""
        return self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT"

    def _head_without_offer(self) -> bytes:
        """The head of the request as if nothing had been offered: only HTTP/1 is spoken here.

        The parser leaves the body of such a request unread, so it has to read the request again.
        """
        lines = [b"%b %b HTTP/1.1" % (self._parser.get_method(), self._target)]
        for name, value in self._headers:
            if name.lower() == b"connection":
                options = (option.strip() for option in value.split(b","))
                value = b", ".join(option for option in options if option.lower() != b"upgrade")
            if name.lower() != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _refuse(self, error: ColibriError) -> None:
        """Answer `error` in place of the request that is arriving, then close: its end can't be found."""
        exchange = self._incoming
        if exchange is None:
            head = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._headers}
            # The parser still has the method of the request before until a target has come.
            method = self._parser.get_method().decode("latin-1") if self._target else "GET"
            exchange = Exchange(self, Request(method, "", headers=head), keep_alive=False, chunked=True)
            self._exchanges.append(exchange)
        exchange.fail(error)
        self._incoming = None
        self._begun = False
        self._deaf = True

    def _advance(self) -> None:
        """Start the first exchange if it can be answered, else wait for it or for the next, but not for ever."""
        first = self._exchanges[0] if self._exchanges else None
        if first is not None and first.task is not None:
            return
        if first is not None and first.complete:
            self._disarm()
            first.start()
        elif first is not None or self._begun:
            if first is not None and first.expected and self._body_size == 0:
                first.expected = False
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if self._alarm != self._await_request:
                self._since = self.loop.time()
                self._await_request()
        elif self._alarm is None:
            self._arm(self.limits.idle_seconds, self.close)

    def _await_request(self) -> None:
        """Time out a request that never ends. A big body may take longer, at `slowest_rate`."""
        due = self._since + self.limits.request_seconds + self._body_size / self.limits.slowest_rate
        left = due - self.loop.time()
        if left > 0:
            self._arm(left, self._await_request)
            return
        self._disarm()
        self._fault = BadRequest("The request took too long to arrive.", status=408, code="request_timeout")
        self._refuse(self._fault)
        self._advance()

    def _measure_head(self, size: int) -> None:
        self._head_size += size
        if self._fault is None and (
            self._head_size > self.limits.header_bytes or len(self._headers) > self.limits.header_count
        ):
            self._fault = BadRequest(
                f"The head of the request is larger than {self.limits.header_bytes} bytes "
                f"or has more than {self.limits.header_count} headers.",
                status=431,
                code="headers_too_large",
            )

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The request body is larger than {self.limits.body_bytes} bytes, the most this server takes.")

    # Time

    def _leave(self) -> None:
        if self._fault is None or not self._transport.can_write_eof():
            self.close()
            return
        # Closing while bytes come in would reset the connection, and the client might never see the answer.
        self._deaf = True
        self.flow.resume_reading()
        self._transport.write_eof()
        self._arm(self.limits.linger_seconds, self.abort)

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        self._disarm()
        self._timer, self._alarm = self.loop.call_later(seconds, then), then

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._alarm = None
