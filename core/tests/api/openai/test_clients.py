"""What real clients send, in shape (long texts are replaced): every request is served, or refused for a named reason.

Recorded from the clients' own traffic, in `clients.json`: a list of {client, path, headers, body}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.api.app import build
from colibri.settings import Settings

from ...http.fake import ask, request
from ..fake import HELLO, FakeService

RECORDED = json.loads(Path(__file__).with_name("clients.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("recorded", RECORDED, ids=[f"{item['client']}-{i}" for i, item in enumerate(RECORDED)])
def test_recorded_request(recorded: dict[str, Any]) -> None:
    service = FakeService(HELLO)
    data = request("POST", recorded["path"], recorded["body"], **recorded["headers"])
    (answer,) = ask(build(service, Settings()), data)
    body = recorded["body"]
    if "response_format" in body:
        assert (answer.status, answer.error["param"]) == (400, "response_format")
        return
    assert answer.status == 200
    (asked,) = service.requests
    if "prompt" in body:
        assert asked.text == body["prompt"]
        return
    assert asked.conversation is not None
    assert [turn.role for turn in asked.conversation.turns] == [message["role"] for message in body["messages"]]
    assert [tool.declaration for tool in asked.conversation.tools] == body.get("tools", [])
    if body.get("stream"):
        usage = [frame["usage"] for frame in answer.frames if frame.get("usage")]
        assert len(usage) == bool(body.get("stream_options", {}).get("include_usage"))
