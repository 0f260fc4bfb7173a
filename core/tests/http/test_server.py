"""The server on real sockets."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys

import pytest

from colibri.api.app import App, build
from colibri.errors import SettingError, Unavailable
from colibri.http.loop import run
from colibri.http.server import serve
from colibri.settings import Settings

from ..api.fake import FakeService, Script, events
from .fake import parse, request, until

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}


def app(script: Script | None = None) -> App:
    return build(FakeService(script) if script else FakeService(), Settings(port=0))


async def _ask(port: int, data: bytes, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_serves_and_stops_on_both_loops() -> None:
    async def main() -> None:
        server = await serve(app())
        data = request("POST", "/v1/chat/completions", {**CHAT, "stream": True}, connection="close")
        (answer,) = parse(await _ask(server.port, data))
        assert answer.frames[-1]["choices"][0]["finish_reason"] == "stop"
        await server.close()
        assert not server.traffic.connections
        assert not server.sockets

    asyncio.run(main())
    run(main())


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")

    async def main() -> None:
        for host in ("::1", "[::1]"):
            server = await serve(app(), host, 0)
            (answer,) = parse(await _ask(server.port, request("GET", "/health", host="[::1]", connection="close"), "::1"))
            assert answer.status == 200
            await server.close()

    asyncio.run(main())


def test_where_it_cannot_listen_it_says_what_to_change() -> None:
    async def main() -> None:
        server = await serve(app())
        for host, port, flag in (
            ("127.0.0.1", server.port, "--port"),
            ("127.0.0.1", 70000, "--port"),
            ("192.0.2.1", 0, "--host"),
            ("no such name", 0, "--host"),
        ):
            with pytest.raises(SettingError, match=flag) as caught:
                await serve(app(), host, port)
            assert "\n" not in caught.value.message
        await server.close()

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_disconnects_frees_its_slot(stream: bool) -> None:
    async def main() -> None:
        service = FakeService(Script([events(("content", "a")), asyncio.Event()]))
        server = await serve(build(service, Settings(port=0)))
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request("POST", "/v1/chat/completions", {**CHAT, "stream": stream}))
        await until(lambda: service.live)
        writer.transport.abort()
        await until(lambda: not (service.live or server.traffic.answers or server.traffic.connections))
        assert service.generations[0].cancelled
        await server.close()

    run(main())


def test_closing_lets_streams_end_and_cuts_those_that_do_not() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        service = FakeService(Script([events(("content", "a")), gate, events(("content", "b"))]))
        server = await serve(build(service, Settings(port=0)))
        data = request("POST", "/v1/chat/completions", {**CHAT, "stream": True})
        client = asyncio.create_task(_ask(server.port, data))
        await until(lambda: service.steps)
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0.01)
        assert not server.sockets
        gate.set()
        await closing
        (answer,) = parse(await client)
        assert "".join(f["choices"][0]["delta"].get("content", "") for f in answer.frames) == "ab"

        service = FakeService(Script([events(("content", "a")), asyncio.Event()]))
        server = await serve(build(service, Settings(port=0)))
        client = asyncio.create_task(_ask(server.port, data))
        await until(lambda: service.steps)
        await server.close(grace=0.01)
        assert not service.live
        assert not server.traffic.answers
        # A chunked body without its last chunk: the client knows that this is not all.
        assert not (await asyncio.gather(client, return_exceptions=True))[0].endswith(b"0\r\n\r\n")

    run(main())


def test_answers_that_are_overdue_are_told_why_they_end() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def overdue() -> None:
            gate.set()

        service = FakeService(Script([events(("content", "a")), gate, Unavailable("The server is shutting down.")]))
        server = await serve(build(service, Settings(port=0)))
        data = request("POST", "/v1/chat/completions", {**CHAT, "stream": True})
        client = asyncio.create_task(_ask(server.port, data))
        await until(lambda: service.steps)
        await server.close(grace=0.01, overdue=overdue)
        (answer,) = parse(await client)
        assert any("shutting down" in str(frame.get("error")) for frame in answer.frames)

    run(main())


def test_a_big_body_refused_is_answered_before_the_connection_closes() -> None:
    async def main() -> None:
        server = await serve(build(FakeService(), Settings(port=0, max_body=1000)))
        loop = asyncio.get_running_loop()

        def post() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            connection.putrequest("POST", "/v1/chat/completions")
            connection.putheader("Content-Length", "5000000")
            connection.endheaders()
            try:
                for _ in range(50):
                    connection.send(b"x" * 100_000)
            except OSError:
                pass
            status = connection.getresponse().status
            connection.close()
            return status

        assert await loop.run_in_executor(None, post) == 413
        await server.close()

    run(main())


def test_asyncio_is_enough() -> None:
    code = (
        "import sys; sys.modules['uvloop'] = None\n"
        "from colibri.http.loop import run\n"
        "async def main():\n"
        "    import asyncio; return type(asyncio.get_running_loop()).__module__\n"
        "print(run(main()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("asyncio")
