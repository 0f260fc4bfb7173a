"""Frames survive any cut of the stream; a bad one costs no more than its own request."""

from __future__ import annotations

import struct
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.compute.plan import Codes
from colibri.engine.frames import (
    MAX_FRAME,
    Accept,
    Cancel,
    Done,
    Error,
    Progress,
    Ready,
    Shutdown,
    Stop,
    Submit,
    Tokens,
    mark_of,
)
from colibri.engine.wire import BrokenStream, Malformed, engine_side, gateway_side, pack
from colibri.family import Sampling

TO_ENGINE = [
    Submit(1, [1, 2, 3], 5, Sampling(0.5, seed=2**63), [7], 0),
    Submit(2, [], 5, Sampling()),
    Submit(3, [1, mark_of(b"\0\1"), -(2**63)], 5, Sampling(), media=[b"\0\1", b"\2\0"]),
    Stop(1),
    Cancel(2),
    Shutdown(),
]
FROM_ENGINE = [
    Progress("reading", 0.5),
    Ready(64, 2, 32, "x"),
    Ready(64, 2, 32, "x", Codes(80, 16)),
    Accept(1, 0, 3, 0, 5),
    Tokens(1, [3]),
    Done(1, "stop", 0.5, 0.25),
    Error(None, "bad_checkpoint", "m"),
    Error(2, "c", "m", 400, "messages"),
]


def raw(value: object) -> bytes:
    body = msgspec.msgpack.encode(value)
    return struct.pack("<I", len(body)) + body


@given(st.lists(st.integers(0, 400), max_size=12))
def test_any_cut(cuts: list[int]) -> None:
    for reader, frames in ((engine_side(), TO_ENGINE), (gateway_side(), FROM_ENGINE)):
        data = b"".join(map(pack, frames))
        edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        got = [frame for start, end in pairwise(edges) for frame in reader.feed(data[start:end])]
        assert got == frames


@pytest.mark.parametrize(
    ("value", "expected_id", "kind"),
    [
        ({"t": "submit", "id": 7}, 7, "submit"),
        ({"t": "submit", "id": 7, "ids": ["x"], "max_tokens": 1, "sampling": {}}, 7, "submit"),
        ({"t": "submit", "id": "seven"}, None, None),
        ({"id": 7}, 7, None),
        ({"t": 5, "id": 7}, None, None),
        ([1, 2], None, None),
        ("text", None, None),
    ],
)
def test_a_malformed_frame(value: object, expected_id: int | None, kind: str | None) -> None:
    reader = engine_side()
    bad, good = reader.feed(raw(value) + pack(Stop(1)))
    assert isinstance(bad, Malformed)
    assert (bad.id, bad.kind) == (expected_id, kind)
    assert good == Stop(1)


def test_bytes_that_are_no_message_at_all() -> None:
    reader = engine_side()
    bad, good = reader.feed(struct.pack("<I", 3) + b"\xc1\xc1\xc1" + pack(Stop(1)))
    assert isinstance(bad, Malformed)
    assert bad.id is None
    assert good == Stop(1)


def test_unknown_kinds_and_fields_are_ignored() -> None:
    reader = gateway_side()
    frames = reader.feed(raw({"t": "hits", "id": 1, "map": b"\x00"}) + raw({"t": "tokens", "id": 1, "ids": [1], "x": 2}))
    assert frames == [Tokens(1, [1])]


def test_too_long() -> None:
    with pytest.raises(BrokenStream):
        engine_side().feed(struct.pack("<I", MAX_FRAME + 1))
    with pytest.raises(ValueError, match="longer than the limit"):
        pack(Submit(1, [2**40] * (MAX_FRAME // 9 + 1), 1, Sampling()))
