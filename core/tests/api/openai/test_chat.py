"""Chat replies and streams, from HTTP bytes to HTTP bytes."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from colibri.api.app import build
from colibri.chat.events import Event
from colibri.errors import BadRequest, EngineError, ModelOutputError, Overloaded, Refusal
from colibri.serve.request import Usage
from colibri.settings import Settings

from ...http.fake import Answer, Client, ask, request
from ..fake import CALL, HELLO, FakeService, Script, broken, events

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}


def post(service: FakeService, **fields: Any) -> Answer:
    (answer,) = ask(build(service, Settings()), request("POST", "/v1/chat/completions", {**CHAT, **fields}))
    assert not service.live
    return answer


def joined(frames: list[Any]) -> dict[str, Any]:
    """What a client makes of a stream's deltas, checking every rule on the way."""
    message: dict[str, Any] = {"role": None, "content": "", "reasoning_content": "", "tool_calls": []}
    reasons = []
    for frame in frames:
        if not frame["choices"]:
            continue
        (choice,) = frame["choices"]
        assert choice["index"] == 0
        assert choice["logprobs"] is None
        if choice["finish_reason"] is not None:
            assert choice["delta"] == {}
            reasons.append(choice["finish_reason"])
            continue
        assert not reasons
        for name, value in choice["delta"].items():
            if name == "role":
                assert message["role"] is None
                message["role"] = value
            elif name == "tool_calls":
                (delta,) = value
                if "id" in delta:
                    assert delta["index"] == len(message["tool_calls"])
                    assert delta["type"] == "function"
                    message["tool_calls"].append({"name": delta["function"]["name"], "arguments": ""})
                else:
                    assert set(delta) == {"index", "function"}
                    assert set(delta["function"]) == {"arguments"}
                message["tool_calls"][delta["index"]]["arguments"] += delta["function"]["arguments"]
            else:
                message[name] += value
    assert len(reasons) == 1
    return {**message, "finish_reason": reasons[0]}


def test_reply() -> None:
    service = FakeService()
    answer = post(service)
    reply = answer.json
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-colibri-queue-wait-ms"] == "31"
    assert answer.headers["x-request-id"].startswith("req_")
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", reply.pop("id"))
    assert isinstance(reply.pop("created"), int)
    assert reply == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Héllo", "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 1,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }
    assert "Héllo".encode() in answer.body


def test_reply_with_reasoning_and_calls() -> None:
    message = post(FakeService(CALL)).json["choices"][0]["message"]
    ids = [call.pop("id") for call in message["tool_calls"]]
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", name) for name in ids)
    assert len(set(ids)) == 2
    assert message == {
        "role": "assistant",
        "content": "Looking.",
        "refusal": None,
        "annotations": [],
        "reasoning_content": "I need weather",
        "tool_calls": [
            {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}},
            {"type": "function", "function": {"name": "get_time", "arguments": "{}"}},
        ],
    }


def test_content_is_null_only_with_nothing_but_calls() -> None:
    calls = events(("tool_start", "f", 0), ("tool_args", "{}", 0), ("tool_end", "", 0))
    assert post(FakeService(Script([calls]))).json["choices"][0]["message"]["content"] is None
    assert post(FakeService(Script([]))).json["choices"][0]["message"]["content"] == ""


def test_an_incomplete_call_is_text_not_a_call() -> None:
    cut = [
        events(("content", "Almost."), ("tool_start", "f", 0), ("tool_args", '{"a', 0)),
        events(("tool_cut", '<call>{"a', 0)),
    ]
    choice = post(FakeService(Script(cut, finish="length"))).json["choices"][0]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"] == 'Almost.<call>{"a'
    never_begun = [events(("content", "write "), ("tool_cut", "<call> and the name", 0))]
    assert post(FakeService(Script(never_begun))).json["choices"][0]["message"]["content"] == "write <call> and the name"
    assert joined(post(FakeService(Script(never_begun)), stream=True).frames)["content"] == "write <call> and the name"


def test_stream() -> None:
    answer = post(FakeService(), stream=True)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["connection"] == "close"
    assert answer.headers["x-colibri-queue-wait-ms"] == "31"
    frames = answer.frames
    assert len({(f["id"], f["created"], f["model"], f["object"]) for f in frames}) == 1
    assert frames[0]["object"] == "chat.completion.chunk"
    assert all("usage" not in frame for frame in frames)
    assert [f["choices"][0]["delta"] for f in frames] == [
        {"role": "assistant", "content": ""},
        {"content": "H"},
        {"content": "é"},
        {"content": "llo"},
        {},
    ]
    assert joined(frames)["content"] == "Héllo"


def test_stream_with_usage() -> None:
    *frames, last = post(FakeService(), stream=True, stream_options={"include_usage": True}).frames
    assert all(frame["usage"] is None and frame["choices"] for frame in frames)
    assert last["choices"] == []
    assert last["usage"] == post(FakeService()).json["usage"]


def test_stream_with_calls_equals_the_reply() -> None:
    streamed = joined(post(FakeService(CALL), stream=True).frames)
    whole = post(FakeService(CALL)).json["choices"][0]
    assert streamed["content"] == whole["message"]["content"]
    assert streamed["reasoning_content"] == whole["message"]["reasoning_content"]
    assert streamed["tool_calls"] == [call["function"] for call in whole["message"]["tool_calls"]]
    assert streamed["finish_reason"] == whole["finish_reason"] == "tool_calls"


def test_one_step_of_the_engine_is_one_write_and_its_texts_one_delta() -> None:
    async def main() -> None:
        step = events(("content", "a"), ("content", "b"), ("swallowed", ""), ("content", "c"), ("reasoning", "r"))
        gate = asyncio.Event()
        client = Client(build(FakeService(Script([gate, step])), Settings()))
        client.send(request("POST", "/v1/chat/completions", {**CHAT, "stream": True}))
        await client.settle()
        assert client.transport.writes == 1  # the head together with the role
        gate.set()
        await client.quiet()
        assert client.transport.writes == 4  # the step, the end of the stream, the end of the body
        (answer,) = client.take()
        assert [f["choices"][0]["delta"] for f in answer.frames[1:-1]] == [{"content": "abc"}, {"reasoning_content": "r"}]

    asyncio.run(main())


@pytest.mark.parametrize("text", ['"\\\n\u2028\x00</script>\U0001f600', "{}", '{"choices":[]}', "data: [DONE]\n\n"])
def test_any_text_survives(text: str) -> None:
    step = [Event("content", text, (0, 0)), Event("tool_start", text, (0, 0), 0), Event("tool_args", text, (0, 0), 0)]
    service = FakeService(Script([step]))
    service.model_id = 'm{}"delta":{}'
    frames = post(service, model=service.model_id, stream=True).frames
    message = joined(frames)
    assert message["content"] == text
    assert message["tool_calls"] == [{"name": text, "arguments": text}]
    assert frames[0]["model"] == service.model_id


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (Script(refuse=Refusal("no tools here", param="tools")), 400, "unsupported_parameter"),
        (Script(admit=Overloaded("the queue is full")), 429, "queue_full"),
        (
            Script(admit=BadRequest("too long", code="context_length_exceeded", param="messages")),
            400,
            "context_length_exceeded",
        ),
        (Script(admit=EngineError("the engine died")), 500, "engine_error"),
        (Script(refuse=ZeroDivisionError("secret")), 500, "engine_error"),
        (Script(admit=ZeroDivisionError("secret")), 500, "engine_error"),
    ],
)
def test_before_the_engine_accepts_every_failure_has_its_status(
    script: Script, status: int, code: str, stream: bool
) -> None:
    answer = post(FakeService(script), stream=stream)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert b"secret" not in answer.body
    assert ("Retry-After" in answer.headers) is (status == 429)


def test_no_byte_is_sent_before_the_engine_accepts() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        client = Client(build(FakeService(Script(HELLO.steps, admit=gate)), Settings()), keepalive_seconds=0.001)
        client.send(request("POST", "/v1/chat/completions", {**CHAT, "stream": True}))
        await asyncio.sleep(0.01)
        assert not client.transport.written
        gate.set()
        await client.quiet()
        assert client.take()[0].status == 200

    asyncio.run(main())


@pytest.mark.parametrize(
    "failure", [broken(), ModelOutputError("a call does not fit its schema"), ZeroDivisionError("secret")]
)
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_failure_mid_way_is_an_error_or_ends_the_stream_as_one(failure: Exception, after: int) -> None:
    script = Script([*HELLO.steps[:after], failure, *HELLO.steps[after:]])
    answer = post(FakeService(script))
    expected = getattr(failure, "code", "engine_error")
    assert (answer.status, answer.error["code"]) == (getattr(failure, "status", 500), expected)
    answer = post(FakeService(script), stream=True)
    assert answer.status == 200
    *frames, last = answer.frames
    assert set(last) == {"error"}
    assert last["error"]["code"] == expected
    assert all(frame["choices"][0]["finish_reason"] is None for frame in frames)
    assert "".join(f["choices"][0]["delta"].get("content", "") for f in frames) == "Héllo"[: [0, 1, 2, 5][after]]
    assert b"secret" not in answer.body


def test_keepalive_is_an_empty_reasoning_delta() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        client = Client(build(FakeService(Script([gate, *HELLO.steps])), Settings()), keepalive_seconds=0.001)
        client.send(request("POST", "/v1/chat/completions", {**CHAT, "stream": True}))
        await asyncio.sleep(0.02)
        gate.set()
        await client.quiet()
        (answer,) = client.take()
        deltas = [frame["choices"][0]["delta"] for frame in answer.frames]
        assert deltas[1] == {"reasoning_content": ""}
        assert joined(answer.frames)["content"] == "Héllo"

    asyncio.run(main())


def test_http_10_streams_end_with_the_connection() -> None:
    body = json.dumps({**CHAT, "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    (answer,) = ask(build(FakeService(), Settings()), head + body)
    assert "transfer-encoding" not in answer.headers
    assert joined(answer.frames)["content"] == "Héllo"


def test_conversation_reaches_the_service() -> None:
    service = FakeService()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    post(service, tools=tools, tool_choice="required", temperature=0, cache_slot=1, stop="x")
    (asked,) = service.requests
    assert asked.conversation is not None
    assert asked.conversation.turns[0].text == "Hi"
    assert asked.conversation.tools[0].declaration == tools[0]
    assert asked.options.tool_choice.mode == "required"
    assert (asked.sampling.temperature, asked.sampling.top_p, asked.slot, asked.stop) == (0, 0.9, 1, ("x",))


def test_usage_is_the_services() -> None:
    usage = post(FakeService(Script([], usage=Usage(100, 0, 0, 0)))).json["usage"]
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (100, 100)
