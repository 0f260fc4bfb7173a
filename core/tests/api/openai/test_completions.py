"""Completion replies and streams."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from colibri.api.app import build
from colibri.settings import Settings

from ...http.fake import Answer, Client, ask, request
from ..fake import HELLO, FakeService, Script, broken, events


def post(service: FakeService, **fields: Any) -> Answer:
    (answer,) = ask(build(service, Settings()), request("POST", "/v1/completions", {"prompt": "Complete me", **fields}))
    assert not service.live
    return answer


def test_reply() -> None:
    service = FakeService()
    reply = post(service, temperature=0, max_tokens=4).json
    assert re.fullmatch(r"cmpl-[0-9a-f]{32}", reply["id"])
    assert reply["object"] == "text_completion"
    assert reply["choices"] == [{"index": 0, "text": "Héllo", "logprobs": None, "finish_reason": "stop"}]
    assert reply["usage"]["total_tokens"] == 9
    (asked,) = service.requests
    assert (asked.text, asked.max_tokens, asked.sampling.temperature) == ("Complete me", 4, 0)


def test_stream() -> None:
    frames = post(FakeService(Script(HELLO.steps, finish="length")), stream=True).frames
    assert {frame["object"] for frame in frames} == {"text_completion"}
    assert [frame["choices"][0]["text"] for frame in frames] == ["", "H", "é", "llo", ""]
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [None] * 4 + ["length"]
    assert all("delta" not in frame["choices"][0] and "usage" not in frame for frame in frames)


def test_stream_with_usage() -> None:
    *frames, last = post(FakeService(), stream=True, stream_options={"include_usage": True}).frames
    assert all(frame["usage"] is None for frame in frames)
    assert (last["choices"], last["usage"]["prompt_tokens"]) == ([], 7)


def test_any_text_survives() -> None:
    text = '""\\"text":""\n'
    assert post(FakeService(Script([events(("content", text))])), stream=True).frames[1]["choices"][0]["text"] == text


def test_a_failure_mid_way_ends_the_stream() -> None:
    frames = post(FakeService(Script([*HELLO.steps[:1], broken()])), stream=True).frames
    assert frames[-1]["error"]["code"] == "engine_error"


def test_keepalive_is_an_empty_text() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        client = Client(build(FakeService(Script([gate, *HELLO.steps])), Settings()), keepalive_seconds=0.001)
        client.send(request("POST", "/v1/completions", {"prompt": "a", "stream": True}))
        await asyncio.sleep(0.02)
        gate.set()
        await client.quiet()
        (answer,) = client.take()
        assert len(answer.frames) > 5
        assert all(set(frame["choices"][0]) == {"index", "text", "logprobs", "finish_reason"} for frame in answer.frames)

    asyncio.run(main())
