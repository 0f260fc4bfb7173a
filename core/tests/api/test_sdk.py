"""The official Python client of OpenAI against the real server, on a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import openai
import pytest

from colibri.api.app import build
from colibri.http.loop import run
from colibri.http.server import Server, serve
from colibri.settings import Settings

from .fake import CALL, HELLO, FakeService, Script, broken

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]
USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeService, str]]:
    """A server in a thread of its own, with a key."""
    service = FakeService()
    ready: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        server = await serve(build(service, Settings(api_key="secret", port=0)))
        stop = asyncio.Event()
        ready.set_result((server, asyncio.get_running_loop(), stop))
        await stop.wait()
        await server.close()
        assert not server.traffic.connections

    thread = threading.Thread(target=run, args=(main(),))
    thread.start()
    server, loop, stop = ready.result()
    yield service, f"http://127.0.0.1:{server.port}/v1"
    loop.call_soon_threadsafe(stop.set)
    thread.join()


@pytest.fixture
def service(served: tuple[FakeService, str]) -> FakeService:
    served[0].script = HELLO
    return served[0]


@pytest.fixture
def client(served: tuple[FakeService, str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served[1], api_key="secret", max_retries=0) as client:
        yield client


def test_chat(service: FakeService, client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="tiny", messages=USER, max_completion_tokens=5)
    assert reply.choices[0].message.content == "Héllo"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 3
    assert reply._request_id is not None
    assert service.requests[-1].max_tokens == 5


def test_chat_stream(service: FakeService, client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="tiny", messages=USER, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Héllo"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 9


def test_tools_with_and_without_stream(service: FakeService, client: openai.OpenAI) -> None:
    service.script = CALL
    message = client.chat.completions.create(model="tiny", messages=USER, tools=TOOLS).choices[0].message
    assert message.tool_calls is not None
    with client.chat.completions.stream(model="tiny", messages=USER, tools=TOOLS) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.content == message.content == "Looking."
    assert final.message.tool_calls is not None
    for plain, streamed in zip(message.tool_calls, final.message.tool_calls, strict=True):
        assert streamed.function.name == plain.function.name
        assert streamed.function.arguments == plain.function.arguments
        assert streamed.id.startswith("call_")
        assert len(streamed.id) == 29
    # A returned turn can be sent back as it is.
    again = [*USER, final.message.to_dict(), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}]
    client.chat.completions.create(model="tiny", messages=again, tools=TOOLS)  # type: ignore[arg-type]
    asked = service.requests[-1].conversation
    assert asked is not None
    assert asked.turns[1].calls[0].arguments == {"city": "Paris"}


def test_completions(service: FakeService, client: openai.OpenAI) -> None:
    assert client.completions.create(model="tiny", prompt="a").choices[0].text == "Héllo"
    stream = client.completions.create(model="tiny", prompt="a", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "Héllo"


def test_models(service: FakeService, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "colibri"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_errors(service: FakeService, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="tiny", messages=USER, n=2)
    assert (bad.value.code, bad.value.param) == ("unsupported_value", "n")
    with pytest.raises(openai.AuthenticationError) as unknown:
        client.with_options(api_key="wrong").models.list()
    assert unknown.value.code == "invalid_api_key"
    service.script = Script([*HELLO.steps, broken("the engine was killed by signal 9")])
    with pytest.raises(openai.APIError, match="killed by signal 9"):
        list(client.chat.completions.create(model="tiny", messages=USER, stream=True))


def test_leaving_a_stream_early_frees_the_slot(service: FakeService, client: openai.OpenAI) -> None:
    service.script = Script([*HELLO.steps, asyncio.Event()])
    with client.chat.completions.create(model="tiny", messages=USER, stream=True) as stream:
        next(iter(stream))
    gone = threading.Event()
    for _ in range(1000):
        if not service.live:
            break
        gone.wait(0.005)
    assert not service.live


def test_many_at_once(service: FakeService, served: tuple[FakeService, str]) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=served[1], api_key="secret", max_retries=0) as client:

            async def ask(stream: bool) -> str:
                if not stream:
                    reply = await client.chat.completions.create(model="tiny", messages=USER)
                    return reply.choices[0].message.content or ""
                chunks = await client.chat.completions.create(model="tiny", messages=USER, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

            assert await asyncio.gather(*(ask(bool(i % 2)) for i in range(20))) == ["Héllo"] * 20

    asyncio.run(main())
