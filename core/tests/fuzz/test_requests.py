"""Thousands of malformed requests: never a 500, never a hang, nothing left behind.

The requests come from a seed, four kinds in turn: broken bytes, odd headers, broken JSON, wrong fields. Whatever the
server makes of one, it must answer with whole, well-formed responses or wait for more, and once the client is gone no
connection, answer or cache slot may be in use. HYPOTHESIS_PROFILE=fuzz makes fifty times as many.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from colibri.api.app import App, build
from colibri.http.traffic import Traffic
from colibri.settings import Settings

from ..api.fake import CALL, FakeService
from ..http.fake import Client, request

COUNT = 1000 * (50 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 1)

CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "seed": 7,
    "stop": ["a", "b"],
    "n": 1,
    "best_of": 1,
    "logit_bias": {},
    "logprobs": False,
    "top_logprobs": 0,
    "echo": False,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "reasoning_effort": "low",
    "enable_thinking": True,
    "preserve_thinking": False,
    "cache_slot": 0,
    "strict_tool_calls": False,
    "x_colibri_ignore_leading_stop": False,
    "functions": None,
    "function_call": None,
    "audio": None,
    "prediction": None,
}
COMPLETION = {
    **{k: v for k, v in CHAT.items() if k not in ("messages", "tools", "tool_choice")},
    "prompt": "Hi",
    "suffix": None,
}

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, 2**31, 2**63, 2**64 - 1, -(2**63), "", " ", "a", "none", "auto",
    "function", "text", "json_object", "\x00", "\u2028", "é" * 50, "x" * 10_000, "\U0001f600", [], {}, [[]], [None], [""],
    [1, 2], ["a"] * 5, {"type": "text"}, {"type": "function"}, {"function": {}}, {"function": "f"}, {"name": 5}, [{}],
    {"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "json_schema"}, {"a": {"b": {"c": [1, [2, [3]]]}}},
]  # fmt: skip

ODD_BYTES = [
    b"", b"\x00", b"\xff", b"\xed\xa0\xbd", b"\r\n", b"\n", b'"', b"\\", b"\\ud83d", b"{", b"}", b"[" * 200, b"]",
    b",", b":", b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"null", b'"model":1,', b"/**/", b"\xef\xbb\xbf", b"0x1",
    b"+1", b"\t",
]  # fmt: skip

ODD_HEADERS: list[tuple[str, str]] = [
    ("content-length", "abc"), ("content-length", "-1"), ("content-length", "99999999999999999999"),
    ("content-length", "0"), ("content-length", "5"), ("transfer-encoding", "chunked"),
    ("transfer-encoding", "identity"), ("transfer-encoding", "gzip"), ("content-encoding", "gzip"),
    ("content-encoding", "zstd"), ("content-encoding", "deflate"), ("content-encoding", "\x01"),
    ("content-type", "text/plain"), ("content-type", ""), ("content-type", "application/json; charset=utf-16"),
    ("expect", "100-continue"), ("expect", "200-ok"), ("connection", "close"), ("connection", "upgrade"),
    ("upgrade", "websocket"), ("upgrade", "h2c"), ("host", "evil.example"), ("host", "[::1"), ("host", "]:["),
    ("host", "a b"), ("origin", "null"), ("origin", "http://localhost:5173"), ("authorization", "Bearer \xff"),
    ("x-api-key", "é"), ("x-request-id", "a\tb"), ("x" * 70_000, "y"), ("y", "z" * 70_000), ("bad name", "1"),
    ("", "1"), ("keep-alive", "timeout=1"), ("range", "bytes=0-1"), ("cookie", "a=b"), ("te", "trailers"),
]  # fmt: skip

TARGETS = [
    "/", "*", "/health", "/v1/models", "/v1/models/%00", "/v1/models/%ff", "/v1/models/../../etc/passwd",
    "//v1/models", "/v1/chat", "/v1/chat/completions/", "/v1/chat/completions?a=%zz", "http://localhost/v1/models",
    "http://evil/v1/models", "http://", "/\x7f", "/v1/completions#x", "localhost:80", "/" + "a" * 9000,
    "/v1/models?" + "&" * 500, "\\", "/é", "",
]  # fmt: skip

METHODS = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PRI", "get", "BREW", ""]


def valid(rng: random.Random) -> bytes:
    """A request that is served."""
    path, body = rng.choice([("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
    return request("POST", path, {**body, "stream": rng.random() < 0.5})


def broken_bytes(rng: random.Random) -> bytes:
    """A valid request after a few cuts, flips and insertions; sometimes noise from the start."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(1, 400))
    return mangled(valid(rng) * rng.choice([1, 1, 2]), rng)


def odd_headers(rng: random.Random) -> bytes:
    """Any method on any target with headers that clash."""
    method, target = rng.choice(METHODS), rng.choice(TARGETS)
    if rng.random() < 0.6:
        method, target = "POST", rng.choice(["/v1/chat/completions", "/v1/completions"])
    body = json.dumps(CHAT).encode() if rng.random() < 0.7 else b""
    headers = [("host", "localhost"), ("content-type", "application/json"), ("content-length", str(len(body)))]
    for _ in range(rng.randrange(1, 4)):
        headers.insert(rng.randrange(len(headers) + 1), rng.choice(ODD_HEADERS))
    if rng.random() < 0.3:
        headers.pop(rng.randrange(len(headers)))
    if rng.random() < 0.02:
        headers *= 60
    version = rng.choice(["HTTP/1.1"] * 8 + ["HTTP/1.0", "HTTP/2.0", "HTTP/1.1 x", ""])
    head = "\r\n".join([f"{method} {target} {version}", *(f"{name}: {value}" for name, value in headers)])
    return head.encode("utf-8") + b"\r\n\r\n" + body


def broken_json(rng: random.Random) -> bytes:
    """A body that was JSON."""
    path, body = rng.choice([("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
    return request("POST", path, mangled(json.dumps(body).encode(), rng), content_type="application/json")


def wrong_fields(rng: random.Random) -> bytes:
    """JSON whose values are of other kinds than they should be, in any place."""
    path, body = rng.choice([("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
    body = copy.deepcopy(body)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        change(body, rng)
    return request("POST", path, body)


def mangled(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0:
            data = data[:at] + rng.choice(ODD_BYTES) + data[at:]
        elif how == 1:
            data = data[:at] + data[at + rng.randrange(1, 20) :]
        elif how == 2:
            data = data[:at] + rng.randbytes(1) + data[at + 1 :]
        elif how == 3:
            data = data[:at] + data[at : at + rng.randrange(1, 60)] + data[at:]
        elif rng.random() < 0.3:
            data = data[:at]
    return data


def change(value: Any, rng: random.Random) -> None:
    """Change one place in a tree of dicts and lists."""
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    child = value[key]
    if isinstance(child, (dict, list)) and child and rng.random() < 0.75:
        change(child, rng)
    elif isinstance(value, dict) and rng.random() < 0.1:
        del value[key]
    else:
        value[key] = copy.deepcopy(rng.choice(ODD))


class Seen(Counter[int]):
    """Statuses of all answers."""


async def throw(app: App, service: FakeService, traffic: Traffic, data: bytes, rng: random.Random, seen: Seen) -> None:
    """One connection with `data` in a few pieces, looked at from every side."""
    client = Client(app, traffic)
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(3)))
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        client.send(data[begin:end])
        if rng.random() < 0.5:
            await client.settle(2)
    gone = rng.random() < 0.05
    if gone:
        client.hang_up()
    # Every answer ends in a bounded number of turns, since the service always goes on: a hang would show here.
    for _ in range(500):
        if not traffic.answers:
            break
        await asyncio.sleep(0)
    assert not traffic.answers
    # What a client that left would have read is no whole answer.
    for answer in [] if gone else client.take(head_only=data.startswith(b"HEAD ")):
        seen[answer.status] += 1
        assert answer.status < 500
        if answer.status >= 400 and answer.body:
            assert answer.error["message"]
    if not client.transport.closed:
        client.hang_up()
    await client.settle(2)
    assert not service.live
    assert not traffic.connections


@pytest.mark.timeout(0)
@pytest.mark.parametrize("make", [broken_bytes, odd_headers, broken_json, wrong_fields])
def test_malformed_requests(make: Callable[[random.Random], bytes]) -> None:
    async def main() -> Seen:
        service, traffic, seen = FakeService(CALL), Traffic(), Seen()
        app = build(service, Settings(max_body=100_000))
        for number in range(COUNT):
            rng = random.Random(f"{make.__name__} {number}")
            data = make(rng)
            try:
                await throw(app, service, traffic, data, rng, seen)
            except BaseException as error:
                error.args = (f"request {number}: {data[:2000]!r}", *error.args)
                raise
        # The server is as good as new.
        client = Client(app, traffic)
        (answer,) = await client.ask(request("POST", "/v1/completions", {"prompt": "Hi"}))
        assert answer.status == 200
        client.hang_up()
        await asyncio.sleep(0)
        return seen

    seen = asyncio.run(main())
    assert seen[400] > COUNT // 5, seen
