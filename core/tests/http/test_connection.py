"""Bytes in, bytes out: framing, limits, order, and what happens when a client goes away."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from colibri.api.app import App, build
from colibri.api.message import Reply, Request
from colibri.settings import Settings

from ..api.fake import HELLO, FakeService, Script, events
from .fake import Answer, Client, ask, request, until

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}


def echo_app(**settings: Any) -> App:
    """An app that tells what it was asked."""
    app = App(Settings(**settings))

    async def echo(asked: Request) -> Reply:
        return Reply(body=f"{asked.method} {asked.path}?{asked.query} ".encode() + asked.body)

    async def fail(asked: Request) -> Reply:
        raise ZeroDivisionError("secret detail")

    app.route("GET", "/echo", echo)
    app.route("POST", "/echo", echo)
    app.route("GET", "/fail", fail)
    return app


def one(data: bytes, **kw: Any) -> Answer:
    """The only answer to `data`."""
    answers = ask(echo_app(), data, **kw)
    assert len(answers) == 1
    return answers[0]


def test_get_and_post() -> None:
    answer = one(b"GET /echo?a=1&b HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (answer.status, answer.body) == (200, b"GET /echo?a=1&b ")
    assert answer.headers["server"] == "colibri"
    assert answer.headers["x-request-id"].startswith("req_")
    assert "connection" not in answer.headers
    assert one(request("POST", "/echo", b"body")).body == b"POST /echo? body"


def test_any_cut_of_the_bytes_gives_the_same_answers() -> None:
    data = (
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
        + request("POST", "/echo", b"second")
        + request("GET", "/echo?z")
    )

    async def main(size: int) -> list[bytes]:
        client = Client(echo_app())
        for i in range(0, len(data), size):
            client.send(data[i : i + size])
            if i % 3 == 0:
                await client.settle(2)
        await client.quiet()
        return [answer.body for answer in client.take()]

    for size in (1, 2, 7, 50, len(data)):
        assert asyncio.run(main(size)) == [b"POST /echo? abcde", b"POST /echo? second", b"GET /echo?z "], size


def test_keep_alive_follows_version_and_header() -> None:
    async def main(data: bytes) -> tuple[Answer, bool]:
        client = Client(echo_app())
        (answer,) = await client.ask(data)
        return answer, client.transport.closed

    for head, closes in (
        (b"HTTP/1.1\r\n", False),
        (b"HTTP/1.1\r\nConnection: close\r\n", True),
        (b"HTTP/1.0\r\n", True),
        (b"HTTP/1.0\r\nConnection: keep-alive\r\n", False),
    ):
        answer, closed = asyncio.run(main(b"GET /echo " + head + b"Host: localhost\r\n\r\n"))
        assert answer.status == 200
        assert closed is closes, head
    assert answer.headers["connection"] == "keep-alive"


def test_nothing_is_answered_after_a_request_that_closes() -> None:
    data = (
        b"GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nGET /echo?2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    assert [a.body for a in ask(echo_app(), data)] == [b"GET /echo? "]


def test_head_is_get_without_a_body() -> None:
    (answer,) = ask(echo_app(), request("HEAD", "/echo"), head_only=True)
    assert answer.status == 200
    assert answer.headers["content-length"] == str(len(b"HEAD /echo? "))


def test_absolute_targets_and_their_authority() -> None:
    assert one(b"GET http://localhost:8000/echo?x HTTP/1.1\r\nHost: evil.example\r\n\r\n").body == b"GET /echo?x "
    assert one(b"GET http://evil.example/echo HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 403


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /echo\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"GET /echo HTTP/3.7\r\nHost: localhost\r\n\r\n", 400),
        (b"GET echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nBad Header: 1\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: abc\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: something\r\nContent-Length: 1\r\n\r\n", 417),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999999999999999\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"b" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    ],
)
def test_what_is_no_good_request_is_answered_and_the_connection_closes(data: bytes, status: int) -> None:
    async def main() -> tuple[list[Answer], Client]:
        client = Client(echo_app(), linger_seconds=0)
        answers = await client.ask(data)
        await asyncio.sleep(0.001)
        return answers, client

    (answer,), client = asyncio.run(main())
    assert answer.status == status
    assert answer.error["message"]
    assert answer.headers["connection"] == "close"
    assert client.transport.eof
    assert client.transport.closed
    assert not client.traffic.connections


def test_a_header_without_an_end_is_not_kept_for_ever() -> None:
    async def main() -> Client:
        client = Client(echo_app())
        client.send(b"GET /echo HTTP/1.1\r\nHost: localhost\r\nA: ")
        for _ in range(100):
            client.send(b"b" * 1000)
        await client.quiet()
        return client

    client = asyncio.run(main())
    assert b" 431 " in client.transport.written


def test_a_chunked_body_has_a_limit_too() -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    (answer,) = ask(echo_app(max_body=100), head + b"64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n")
    assert answer.status == 200
    (answer,) = ask(echo_app(max_body=100), head + b"65\r\n" + b"x" * 101 + b"\r\n0\r\n\r\n" + request("GET", "/echo"))
    assert answer.status == 413
    assert "100 bytes" in answer.error["message"]


def test_gzip_bodies() -> None:
    body = gzip.compress(b"plain")
    assert one(request("POST", "/echo", body, content_encoding="gzip")).body == b"POST /echo? plain"
    bomb = gzip.compress(b"0" * 1_000_000)
    (answer,) = ask(echo_app(max_body=10_000), request("POST", "/echo", bomb, content_encoding="gzip"))
    assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    for broken in (body[:-3], b"plain", body + b"more"):
        answer = one(request("POST", "/echo", broken, content_encoding="gzip"))
        assert (answer.status, answer.error["code"]) == (400, "invalid_value")
    answer = one(request("POST", "/echo", b"x", content_encoding="br"))
    assert (answer.status, answer.error["code"]) == (415, "unsupported_content_encoding")


def test_expect_100_is_answered_before_the_body_comes() -> None:
    async def main() -> None:
        client = Client(echo_app())
        client.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        assert [a.status for a in client.take()] == [100]
        (answer,) = await client.ask(b"body")
        assert answer.body == b"POST /echo? body"
        # A refusal is said instead, and the body never comes.
        client.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        await client.quiet()
        (answer,) = client.take()
        assert answer.status == 404
        assert client.transport.eof

    asyncio.run(main())


def test_a_refused_body_is_read_so_that_the_next_request_is_found() -> None:
    for first, status in (
        (request("POST", "/echo", b"GET /echo HTTP/1.1\r\n\r\n", host="evil.example"), 403),
        (request("POST", "/nowhere", b"GET /echo HTTP/1.1\r\n\r\n"), 404),
        (request("PUT", "/echo", b"GET /echo HTTP/1.1\r\n\r\n"), 405),
    ):
        bad, good = ask(echo_app(), first + request("GET", "/echo?2"))
        assert bad.status == status
        assert good.body == b"GET /echo?2 "


def test_an_unexpected_exception_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    first, second = ask(echo_app(), request("GET", "/fail") + request("GET", "/echo"))
    assert (first.status, first.error["code"], first.error["type"]) == (500, "engine_error", "server_error")
    assert b"secret" not in first.body
    assert "secret detail" in caplog.text
    assert second.status == 200


def test_upgrade_offers_are_ignored() -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    data = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n" + offer + b"Content-Length: 2\r\n\r\nhi" + request("GET", "/echo")
    assert [a.body for a in ask(echo_app(), data)] == [b"POST /echo? hi", b"GET /echo? "]


def test_pipelined_requests_wait_and_so_do_their_bytes() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        app = echo_app()

        async def slow(asked: Request) -> Reply:
            await gate.wait()
            return Reply(body=b"slow")

        app.route("GET", "/slow", slow)
        client = Client(app, backlog_bytes=1000)
        client.send(request("GET", "/slow") + request("GET", "/echo?1"))
        for i in range(2, 40):
            client.send(request("GET", f"/echo?{i}"))
        await client.settle()
        assert not client.transport.written
        assert not client.transport.reading
        gate.set()
        await client.quiet()
        while client.traffic.answers:
            await client.quiet()
        bodies = [answer.body for answer in client.take()]
        assert bodies == [b"slow", *(f"GET /echo?{i} ".encode() for i in range(1, 40))]
        assert client.transport.reading

    asyncio.run(main())


def test_a_client_that_leaves_cancels_its_generation_at_once() -> None:
    async def main(stream: bool, wait_in_queue: bool) -> None:
        never = asyncio.Event()
        script = Script([], admit=never) if wait_in_queue else Script([events(("content", "a")), never])
        service = FakeService(script)
        client = Client(build(service, Settings()))
        client.send(request("POST", "/v1/chat/completions", {**CHAT, "stream": stream}))
        await client.settle()
        assert len(service.live) == 1
        client.hang_up()
        await client.settle(5)
        assert service.generations[0].cancelled
        assert not service.live
        assert not client.traffic.answers
        assert not client.traffic.connections

    for stream in (False, True):
        for wait_in_queue in (False, True):
            asyncio.run(main(stream, wait_in_queue))


def test_leaving_cancels_even_with_a_pipelined_request_behind() -> None:
    async def main() -> None:
        service = FakeService(Script([asyncio.Event()]))
        client = Client(build(service, Settings()))
        client.send(request("POST", "/v1/chat/completions", CHAT) * 3)
        await client.settle()
        client.hang_up()
        await client.settle(5)
        assert len(service.generations) == 1
        assert not service.live

    asyncio.run(main())


def test_a_slow_reader_stops_the_generation_until_it_reads() -> None:
    async def main() -> None:
        service = FakeService(Script([events(("content", "x"))] * 50))
        client = Client(build(service, Settings()))
        client.send(request("POST", "/v1/chat/completions", {**CHAT, "stream": True}))
        await client.settle(4)
        client.connection.pause_writing()
        await client.settle()
        reached = service.steps
        assert reached < 50
        await client.settle()
        assert service.steps == reached
        client.connection.resume_writing()
        await client.quiet()
        assert service.steps == 50
        (answer,) = client.take()
        assert answer.frames[-1]["choices"][0]["finish_reason"] == "stop"

    asyncio.run(main())


def test_a_reader_that_never_reads_is_dropped() -> None:
    async def main() -> None:
        service = FakeService(Script([events(("content", "x"))] * 50))
        client = Client(build(service, Settings()), write_seconds=0.001)
        client.send(request("POST", "/v1/chat/completions", {**CHAT, "stream": True}))
        await client.settle(4)
        client.connection.pause_writing()
        await until(lambda: client.transport.aborted)
        await client.settle()
        assert not service.live
        assert not client.traffic.connections

    asyncio.run(main())


def test_requests_that_never_end_and_idle_connections_time_out() -> None:
    async def until_closed(client: Client) -> None:
        await until(lambda: client.transport.closed)
        await client.settle(3)
        assert not client.traffic.connections

    async def main() -> None:
        for begin in (b"GET /ec", b"GET /echo HTTP/1.1\r\nHost: loc", request("POST", "/echo", b"body")[:-1]):
            client = Client(echo_app(), request_seconds=0.002, linger_seconds=0)
            client.send(begin)
            await until_closed(client)
            (answer,) = client.take()
            assert (answer.status, answer.error["code"]) == (408, "request_timeout")
        client = Client(echo_app(), idle_seconds=0.002)
        await until_closed(client)
        assert not client.transport.written
        # After an answer the connection is idle again.
        client = Client(echo_app(), idle_seconds=0.002, request_seconds=5)
        assert len(await client.ask(request("GET", "/echo"))) == 1
        await until_closed(client)

    asyncio.run(main())


def test_a_big_body_has_longer() -> None:
    async def main() -> None:
        client = Client(echo_app(), request_seconds=0.0, slowest_rate=1)
        body = b"x" * 5000
        whole = request("POST", "/echo", body)
        client.send(whole[:-1000])
        await asyncio.sleep(0.01)
        (answer,) = await client.ask(whole[-1000:])
        assert answer.status == 200

    asyncio.run(main())


def test_more_connections_than_allowed_are_turned_away() -> None:
    async def main() -> None:
        first = Client(echo_app(), connections=1)
        second = Client(echo_app(), traffic=first.traffic, connections=1)
        await first.settle(3)
        assert second.transport.aborted
        second.connection.data_received(request("GET", "/echo"))
        assert len(await first.ask(request("GET", "/echo"))) == 1
        assert len(first.traffic.connections) == 1
        first.hang_up()

    asyncio.run(main())


def test_retiring_lets_an_answer_end_and_closes_the_idle() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        service = FakeService(Script([gate, *HELLO.steps]))
        app = build(service, Settings())
        busy, idle = Client(app), Client(app)
        busy.send(request("POST", "/v1/chat/completions", CHAT) * 2)
        await busy.settle()
        busy.connection.retire()
        idle.connection.retire()
        await idle.settle(3)
        assert idle.transport.closed
        assert not busy.transport.closed
        gate.set()
        await busy.quiet()
        (answer,) = busy.take()
        assert answer.headers["connection"] == "close"
        assert answer.json["choices"][0]["message"]["content"] == "Héllo"
        assert busy.transport.closed
        assert len(service.generations) == 1

    asyncio.run(main())


def test_request_ids_of_the_client_are_kept_if_sane() -> None:
    assert one(request("GET", "/echo", x_request_id="my-id_1.2:3")).headers["x-request-id"] == "my-id_1.2:3"
    for bad in ("a b", "x" * 200, "é", "-a"):
        assert one(request("GET", "/echo", x_request_id=bad)).headers["x-request-id"].startswith("req_")
