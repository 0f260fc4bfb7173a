"""KV files: what is written comes back, and nothing else is ever taken for it."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Codes
from colibri.compute.rounding import Rounding
from colibri.compute.runtime import Row
from colibri.engine.frames import mark_of
from colibri.engine.kv_files import MAGIC, Header, Part, Unusable, encode, load, owner
from colibri.testing.runtime import ScriptedRuntime

from ..native.plans import error, run
from ..native.test_rewind import CONTEXT, PLANS, TOKENS, Fresh, Model, advance, models
from ..native.test_rewind import load as new
from .saving import filled, saved, write

__all__ = ["models"]

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def empty(**options: Any) -> ScriptedRuntime:
    return ScriptedRuntime(identity="a model", sequential=True, **options)


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_slot_goes_on_in_another_process_byte_for_byte(
    models: dict[str, Model], name: str, data: st.DataObject, tmp_path: Path
) -> None:
    length = data.draw(st.integers(1, 120))
    source = new(models[name])
    for start in range(0, length, 25):
        advance(source, 0, TOKENS[: min(start + 25, length)], min(25, length - start))
        source.remember(0)
    path = write(tmp_path / "file", saved(source, TOKENS[:length]))
    target = new(models[name])
    assert owner(path) == target.identity
    assert load(path, [target], 2) == TOKENS[:length]
    more = TOKENS[: length + 20]
    assert advance(target, 2, more, 20) == Fresh(models[name])(more, 20)


@pytest.mark.parametrize(("rounding", "bound"), [("f16", 2e-3), ("q8", 0.05)])
def test_rounded_rows_go_on_nearly_the_same(
    models: dict[str, Model], rounding: Rounding, bound: float, tmp_path: Path
) -> None:
    sizes = {}
    for name in ("rows", "all"):
        source = new(models[name])
        advance(source, 0, TOKENS[:100], 100)
        path = write(tmp_path / "file", saved(source, TOKENS[:100], rounding=rounding))
        sizes[name] = path.stat().st_size / len(saved(source, TOKENS[:100]))
        target = new(models[name])
        load(path, [target], 0)
        found, expected = (run(runtime, TOKENS[100:110], chunk=2, start=100) for runtime in (target, source))
        assert 0 < error(found, expected) < bound
    assert sizes["rows"] < sizes["all"] < 1


def test_memories_and_snapshots_are_never_rounded(models: dict[str, Model], tmp_path: Path) -> None:
    source, target = new(models["memories"]), new(models["memories"])
    advance(source, 0, TOKENS[:50], 50)
    load(write(tmp_path / "file", saved(source, TOKENS[:50], rounding="q8")), [target], 0)
    assert run(target, TOKENS[50:60], chunk=2, start=50) == run(source, TOKENS[50:60], chunk=2, start=50)


def test_sounds_are_saved_as_their_marks(tmp_path: Path) -> None:
    codes = Codes(2, 3)
    sound = b"\2\0\1\0"
    runtime = filled([1, 2], ScriptedRuntime(identity="hears", codes=codes))
    tokens = [1, 2, mark_of(sound)]
    runtime.step([Row(0, 0, 2, codes=sound)])
    path = write(tmp_path / "file", saved(runtime, tokens))
    assert load(path, [ScriptedRuntime(identity="hears", codes=codes)], 1) == tokens
    with pytest.raises(Unusable, match="tokens that this model does not have"):
        load(path, [ScriptedRuntime(identity="hears")], 1)


def test_a_draft_head_has_its_own_part(tmp_path: Path) -> None:
    def pair(head: str) -> list[ScriptedRuntime]:
        return [ScriptedRuntime(identity="model"), ScriptedRuntime(identity=head)]

    source = pair("head")
    filled(IDS, source[0])
    filled(IDS[:6], source[1])
    images = [(runtime.identity, runtime.image(0, len(IDS))) for runtime in source]
    path = write(tmp_path / "file", b"".join(encode(IDS, images, "f32")))
    for runtimes, lengths in ((pair("head"), [8, 6]), (pair("another head"), [8, 0]), (pair("head")[:1], [8])):
        assert load(path, runtimes, 1) == IDS
        assert [runtime.reach(1, 64) for runtime in runtimes] == lengths


# What is not used.

FILE = saved(filled(IDS), IDS)


def refused(path: Path, runtime: ScriptedRuntime | None = None) -> str:
    """Why a file is not used; the slot is empty then, and the file as it was."""
    runtime = runtime or empty()
    filled([7, 7, 7], runtime)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(Unusable) as caught:
        load(path, [runtime], 0)
    assert runtime.reach(0, 64) in (0, 3)
    assert before is None or path.read_bytes() == before
    return str(caught.value)


def test_the_file_that_the_others_are_made_of_is_good(tmp_path: Path) -> None:
    assert load(write(tmp_path / "file", FILE), [empty()], 0) == IDS


def test_a_file_cut_short_anywhere(tmp_path: Path) -> None:
    for length in range(len(FILE)):
        assert refused(write(tmp_path / "file", FILE[:length]))


@pytest.mark.parametrize("flip", [1, 0x80, 0xFF])
def test_a_flipped_byte_anywhere(flip: int, tmp_path: Path) -> None:
    for at in range(len(FILE)):
        assert refused(write(tmp_path / "file", FILE[:at] + bytes([FILE[at] ^ flip]) + FILE[at + 1 :]))


@given(data=st.binary(max_size=300) | st.binary(max_size=200).map(lambda data: FILE[:20] + data))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(data: bytes, tmp_path: Path) -> None:
    assert refused(write(tmp_path / "file", data))


def test_bytes_behind_the_end(tmp_path: Path) -> None:
    assert refused(write(tmp_path / "file", FILE + b"\0")) == f"has {len(FILE) + 1} bytes instead of {len(FILE)}"


def forged(header: Any, body: bytes = b"") -> bytes:
    """A file with right checksums around a header and a body that nobody wrote."""
    data = msgspec.msgpack.encode(header)
    data = struct.pack("<8sIII", MAGIC, 1, len(data), zlib.crc32(data)) + data + body
    return data + struct.pack("<I", zlib.crc32(data))


def a_part(**fields: Any) -> dict[str, Any]:
    return {"identity": "a model", "length": 2, "snapshots": [2], "exact": 4, "size": 4, **fields}


def a_header(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"tokens": 2, "rounding": "f32", "parts": parts or [a_part()], **fields}


BODY = struct.pack("<2q2Q", 1, 2, 8, 9)
HUGE = (1 << 64) - 1


def test_a_forged_file_can_be_good(tmp_path: Path) -> None:
    assert load(write(tmp_path / "file", forged(a_header(), BODY)), [empty()], 0) == [1, 2]


@pytest.mark.parametrize(
    ("header", "body", "reason"),
    [
        (a_header(rounding="q3"), BODY, "header that can't be read"),
        (a_header(a_part(length="2")), BODY, "header that can't be read"),
        ([], BODY, "header that can't be read"),
        ({}, BODY, "header that can't be read"),
        (a_header(parts=[]), BODY, "contradicts itself"),
        (a_header(a_part(), a_part()), BODY, "contradicts itself"),
        (a_header(*(a_part(identity=name) for name in "abc")), BODY, "contradicts itself"),
        (a_header(tokens=3), BODY, "contradicts itself"),
        (a_header(tokens=HUGE), BODY, "contradicts itself"),
        (a_header(a_part(length=-1), tokens=-1), BODY, "contradicts itself"),
        (a_header(a_part(length=0), tokens=0), BODY, "contradicts itself"),
        (a_header(a_part(exact=5)), BODY, "contradicts itself"),
        (a_header(a_part(exact=-4)), BODY, "contradicts itself"),
        (a_header(a_part(size=HUGE)), BODY, "contradicts itself"),
        (a_header(a_part(snapshots=[HUGE])), BODY, "contradicts itself"),
        (a_header(a_part(snapshots=[-1, 2])), BODY, "contradicts itself"),
        (a_header(a_part(), a_part(identity="b", length=HUGE)), BODY, "contradicts itself"),
        (a_header(a_part(), a_part(identity="b", size=33)), BODY + bytes(132), "contradicts itself"),
        (a_header(a_part(identity="a cousin")), BODY, "belongs to another model"),
        (a_header(a_part(size=1 << 48)), BODY, "bytes instead of"),
        (a_header(a_part(length=65), tokens=65), BODY, "holds 65 tokens, the context has room for 64 (see --ctx)"),
        (a_header(), BODY[:-1], "bytes instead of"),
        (a_header(), struct.pack("<2q2Q", 1, 32, 8, 9), "tokens that this model does not have"),
        (a_header(), struct.pack("<2q2Q", -1, 2, 8, 9), "tokens that this model does not have"),
        (a_header(a_part(exact=6, size=6)), BODY + bytes(8), "its states have other sizes"),
        (a_header(a_part(exact=2)), BODY, "its states have other sizes"),
    ],
)
def test_a_forged_file(header: Any, body: bytes, reason: str, tmp_path: Path) -> None:
    assert reason in refused(write(tmp_path / "file", forged(header, body)))


@given(
    snapshots=st.lists(st.integers(-5, 200), max_size=6),
    length=st.integers(0, 160),
    exact=st.integers(-1, 4000),
    size=st.integers(-1, 4000),
    rounding=st.sampled_from(["f32", "f16", "q8"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_shapes_that_a_model_does_not_have(
    models: dict[str, Model],
    tmp_path: Path,
    snapshots: Sequence[int],
    length: int,
    exact: int,
    size: int,
    rounding: Rounding,
) -> None:
    """Files with right checksums and sizes whose states are not the model's."""
    runtime = new(models["all"])
    part = Part(runtime.identity, length, tuple(snapshots), exact, size)
    rest = bytes(8 * length + (part.bytes(rounding) if 0 <= exact <= size else 7))
    path = write(tmp_path / "file", forged(Header(length, rounding, (part,)), rest))
    with pytest.raises(Unusable):
        load(path, [runtime], 0)
    assert runtime.reach(0, CONTEXT) == 0


def test_numbers_that_are_none_do_no_harm_to_others(models: dict[str, Model], tmp_path: Path) -> None:
    runtime = new(models["all"])
    advance(runtime, 0, TOKENS[:20], 20)
    image = runtime.image(0, 20)
    part = Part(runtime.identity, 20, tuple(image.snapshots), image.exact, image.size)
    body = struct.pack("<20q", *TOKENS[:20]) + np.full(image.size, np.nan, np.float32).tobytes()
    load(write(tmp_path / "file", forged(Header(20, "f32", (part,)), body)), [runtime], 1)
    advance(runtime, 1, TOKENS[:22], 2)
    assert advance(runtime, 0, TOKENS[:22], 2) == Fresh(models["all"])(TOKENS[:22], 2)


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("folder", "pipe", "zeros"):
        assert refused(tmp_path / name) == "is not a regular file"
    assert refused(tmp_path / "loop").startswith("cannot be read: ")
    assert refused(tmp_path / "nothing") == "cannot be read: No such file or directory"
    assert owner(tmp_path / "nothing") is None
    assert refused(write(tmp_path / "other", b"COLIKV1\0" + bytes(100))) == "is not a KV file of this program"
    newer = struct.pack("<8sIII", MAGIC, 2, 0, 0)
    assert refused(write(tmp_path / "newer", newer)) == "has version 2, this program reads version 1"


def test_another_model_with_the_same_shapes(models: dict[str, Model], tmp_path: Path) -> None:
    """The same plan on weights in another file, or in the same file after it was changed."""
    plan, tensors = models["rows"]
    source = new(models["rows"])
    advance(source, 0, TOKENS[:20], 20)
    path = write(tmp_path / "file", saved(source, TOKENS[:20]))
    weights = next(iter(tensors.values())).file
    copy = write(tmp_path / weights.name, weights.read_bytes())
    os.utime(copy, ns=(0, weights.stat().st_mtime_ns))
    moved = {name: msgspec.structs.replace(tensor, file=copy) for name, tensor in tensors.items()}
    assert load(path, [NativeRuntime.load(plan, moved)], 0) == TOKENS[:20]  # a folder may move
    os.utime(copy)
    with pytest.raises(Unusable, match="belongs to another model"):
        load(path, [NativeRuntime.load(plan, moved)], 0)
