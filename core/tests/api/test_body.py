"""Bodies that are not the JSON object they should be."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from colibri.api.body import LARGE, MAX_DEPTH, decode_json, decoded, json_object
from colibri.api.message import Request
from colibri.errors import BadRequest


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "it is empty"),
        (b"{", "line 1, column 2"),
        (b"{'a':1}", "column 2"),
        (b'{"a":1} {"b":2}', "extra data"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e999}', "out of range"),
        (b'{"a":18446744073709551616}', "64 bits"),
        (b'{"a":' + b"9" * 100_000 + b"}", "64 bits"),
        (b'{"a":1,"a":2}', "'a' appears twice"),
        (b'{"b":[{"a":1,"c":2,"a":3}]}', "'a' appears twice"),
        (b'{"a":"\\ud83d"}', "surrogate"),
        (b'{"a":"\\udc00\\ud800"}', "surrogate"),
        (b'{"\\ud83d":1}', "surrogate"),
        (b'{"a":"\xff"}', "UTF-8 at byte 6"),
        (b'{"a":"\xed\xa0\xbd"}', "UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a":"\n"}', "control character"),
        (nested(MAX_DEPTH + 1), "nests deeper"),
        (nested(100_000), "nests deeper"),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, "nests deeper"),
    ],
)
def test_what_is_no_json_says_why(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason) as caught:
        decode_json(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "value",
    [{}, {"a": [1, -1.5, True, None, "é\U0001f600"]}, {"n": [2**64 - 1, -(2**63)]}, {"a": "\\ud83d", "b": "[" * 500}],
)
def test_json_is_read(value: object) -> None:
    assert decode_json(json.dumps(value).encode()) == value


def test_limits_are_just_reached() -> None:
    assert decode_json(nested(MAX_DEPTH))
    assert decode_json(b"[" + b"[]," * 1000 + b"[]]")
    assert decode_json(b'"' + b"[" * 1000 + b'"') == "[" * 1000


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"text"'])
def test_only_objects_are_requests(body: bytes) -> None:
    with pytest.raises(BadRequest, match="must be a JSON object"):
        json_object(Request("POST", "/", body=body))


def test_content_types() -> None:
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"):
        assert json_object(Request("POST", "/", headers={"content-type": kind}, body=b"{}")) == {}
    assert json_object(Request("POST", "/", body=b"{}")) == {}
    for headers in (
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        # A page of another site may send this without asking first.
        {"origin": "https://evil.example"},
    ):
        with pytest.raises(BadRequest, match="Content-Type: application/json") as caught:
            json_object(Request("POST", "/", headers=headers, body=b"{}"))
        assert (caught.value.status, caught.value.code) == (400, "unsupported_content_type")


@pytest.mark.parametrize(("size", "apart"), [(10, False), (LARGE + 1, True)])
def test_large_bodies_are_decoded_beside_the_loop(size: int, apart: bool) -> None:
    """Else one client's long history would stall the streams of all others."""

    async def main() -> tuple[int, int]:
        request = Request("POST", "/", body=json.dumps({"a": "x" * size}).encode())
        return await decoded(request, lambda value: (len(value["a"]), threading.get_ident()))

    length, thread = asyncio.run(main())
    assert length == size
    assert (thread != threading.get_ident()) == apart


@pytest.mark.parametrize("size", [10, LARGE])
def test_large_bodies_are_refused_as_small_ones(size: int) -> None:
    request = Request("POST", "/", body=b"[" + b" " * size + b"]")
    with pytest.raises(BadRequest, match="object"):
        asyncio.run(decoded(request, lambda value: value))
