"""HTTP without sockets: a transport that keeps what is written, and a reader of the answers in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from colibri.api.app import App
from colibri.http.connection import Connection
from colibri.http.dispatch import Dispatch
from colibri.http.limits import Limits
from colibri.http.traffic import Traffic


class Answer(Struct):
    """One response as a client sees it, with the chunks of a chunked body joined."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """What the OpenAI envelope holds."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return dict(error)

    @property
    def frames(self) -> list[Any]:
        """The data of a stream's frames, decoded, up to the end mark, which is checked."""
        assert self.headers["content-type"].startswith("text/event-stream")
        frames = self.body.decode().split("\n\n")
        assert frames.pop() == ""
        assert all(frame.startswith("data: ") for frame in frames)
        assert frames.pop() == "data: [DONE]"
        return [json.loads(frame[6:]) for frame in frames]


def parse(data: bytes, *, head_only: bool = False) -> list[Answer]:
    """The answers in `data`, which must hold whole answers and nothing else. 100 Continue counts as one.

    With `head_only` the first one may answer a HEAD, and then has no body whatever its headers say.
    """
    answers = []
    while data:
        head, blank, data = data.partition(b"\r\n\r\n")
        assert blank, "an answer without the end of its head"
        status, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = dict(pairs)  # type: ignore[arg-type]
        assert len(headers) == len(pairs), "a header was sent twice"
        number = int(status.split(" ")[1])
        if headers.get("transfer-encoding") == "chunked":
            body, data = _unchunk(data)
        elif head_only and not answers and not data.startswith(b"{"):
            body = b""
        elif "content-length" in headers:
            size = int(headers["content-length"])
            body, data = data[:size], data[size:]
            assert len(body) == size
        elif headers.get("content-type", "").startswith("text/event-stream"):
            body, data = data, b""
        else:
            body = b""
        answers.append(Answer(number, headers, body))
    return answers


def _unchunk(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body += data[:length]
        assert data[length : length + 2] == b"\r\n"
        data = data[length + 2 :]
        if not length:
            return body, data


class FakeTransport(asyncio.Transport):
    """Keeps what is written. `hold` makes it a client that reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.protocol: Any = None
        self.closed = self.aborted = self.eof = False
        self.reading = True

    def write(self, data: Any) -> None:
        assert not self.closed, "written after close"
        self.written += data
        self.writes += 1

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


class Client:
    """One connection to `app`; must be made in a running loop."""

    def __init__(self, app: App, traffic: Traffic | None = None, **limits: Any) -> None:
        self.traffic = traffic or Traffic()
        self.transport = FakeTransport()
        limits = {"body_bytes": app.settings.max_body, **limits}
        self.connection = Connection(Dispatch(app), msgspec.structs.replace(Limits(), **limits), self.traffic)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        """Bytes arrive at the server, unless it has closed."""
        if not self.transport.closed:
            self.connection.data_received(data)

    async def settle(self, turns: int = 30) -> None:
        """Let everything that can happen happen: a number of turns of the loop, no time."""
        for _ in range(turns):
            await asyncio.sleep(0)

    async def quiet(self) -> None:
        """Wait until no answer is under way."""
        await self.settle(3)
        while self.traffic.answers:
            await asyncio.wait(self.traffic.answers)
        await self.settle(3)

    async def ask(self, data: bytes, *, head_only: bool = False) -> list[Answer]:
        """Send, wait for all answers, and give those that came since the last time."""
        self.send(data)
        await self.quiet()
        return self.take(head_only=head_only)

    def take(self, *, head_only: bool = False) -> list[Answer]:
        """The answers since the last time."""
        written = bytes(self.transport.written)
        self.transport.written.clear()
        return parse(written, head_only=head_only)

    def hang_up(self) -> None:
        """The client goes away."""
        self.transport.closed = True
        self.connection.connection_lost(None)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what will happen soon."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never happened")


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """A request's bytes; a body that is not bytes is sent as JSON."""
    fields = {"host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        fields.setdefault("content-type", "application/json")
    if body is not None:
        fields["content-length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def ask(app: App, data: bytes, *, head_only: bool = False, **limits: Any) -> list[Answer]:
    """The answers to `data` on a fresh connection; nothing may be left behind."""

    async def main() -> list[Answer]:
        client = Client(app, **limits)
        answers = await client.ask(data, head_only=head_only)
        client.hang_up()
        await client.settle(3)
        assert not client.traffic.connections
        assert not client.traffic.answers
        return answers

    return asyncio.run(main())
