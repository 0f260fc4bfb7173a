"""Sounds: transformers' frames of the files in tests/data/audio, and what is no sound."""

from __future__ import annotations

import json
import math
import struct
from array import array
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.errors import BadRequest
from colibri_inkling.audio import BANDS, LEVELS, count, frames, levels
from colibri_inkling.wav import RATE, samples

DATA = Path(__file__).parent / "data" / "audio"
NAMES = ("voice", "sweep", "silence")
PARAM = "messages.0.content.0"


def form(kind: int = 1, channels: int = 1, rate: int = RATE, bits: int = 16, more: bytes = b"", stride: int = 0) -> bytes:
    stride = stride or channels * bits // 8
    return struct.pack("<HHIIHH", kind, channels, rate, rate * stride, stride, bits) + more


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def wav(body: bytes, description: bytes | None = None) -> bytes:
    return riff(chunk(b"fmt ", form() if description is None else description), chunk(b"data", body))


def pcm(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}h", *values)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_those_of_transformers(name: str) -> None:
    found = frames((DATA / f"{name}.wav").read_bytes(), PARAM, 20)
    expected = json.loads((DATA / "levels.json").read_text())[name]
    assert ["".join(f"{level:x}" for level in frame) for frame in found] == expected


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=2000))
def test_every_frame_has_a_level_for_each_band(values: list[float]) -> None:
    found = levels(array("d", values))
    assert len(found) == count(len(values)) == math.ceil(len(values) / 800)
    assert all(len(frame) == BANDS and max(frame) < LEVELS for frame in found)


def test_a_frame_hears_what_came_before_but_not_what_comes_after() -> None:
    sound = array("d", [math.sin(n / 3) * math.sin(n / 500) for n in range(4000)])
    whole = levels(sound)
    assert levels(sound[:2400]) == whole[:3]
    assert levels(sound[1600:])[1:] == whole[3:]


def test_a_level_is_a_factor_of_about_four() -> None:
    sound = array("d", [math.sin(n / 3) for n in range(1600)])
    one, two = (levels(array("d", [value * factor for value in sound]))[1] for factor in (0.01, 0.01 * 10 ** (2 * 0.6)))
    loud = max(range(BANDS), key=one.__getitem__)
    assert two[loud] == one[loud] + 2


def test_samples_of_either_kind() -> None:
    assert list(samples(wav(pcm(0, 16384, -32768)), PARAM)) == [0.0, 0.5, -1.0]
    assert list(samples(wav(floats(0, 0.5, -1.5), form(3, bits=32)), PARAM)) == [0.0, 0.5, -1.5]


def test_channels_are_mixed() -> None:
    assert list(samples(wav(pcm(16384, -16384, 16384, 0), form(channels=2)), PARAM)) == [0.0, 0.25]
    assert list(samples(wav(floats(0.5, 0.25, 0.75), form(3, channels=3, bits=32)), PARAM)) == [0.5]


def test_an_extensible_description_says_what_the_samples_are() -> None:
    more = struct.pack("<HHIH", 22, 32, 4, 3) + bytes.fromhex("000000001000800000aa00389b71")
    assert list(samples(wav(floats(0.5), form(0xFFFE, bits=32, more=more)), PARAM)) == [0.5]


def test_other_chunks_are_passed_over() -> None:
    data = riff(chunk(b"LIST", b"abc"), chunk(b"fmt ", form()), chunk(b"fact", b"\0" * 4), chunk(b"data", pcm(16384)))
    assert list(samples(data, PARAM)) == [0.5]


def test_samples_whose_number_the_writer_did_not_know() -> None:
    data = riff(chunk(b"fmt ", form()), chunk(b"data", pcm(16384, 0), 0xFFFFFFFF))
    assert list(samples(data, PARAM)) == [0.5, 0.0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is no WAV file"),
        (b"OggS" + bytes(60), "is no WAV file"),
        (b"RIFF\0\0\0\0AVI " + bytes(60), "is no WAV file"),
        (wav(pcm(0), form(rate=44100)), "has 44100 samples a second, 16000 are needed"),
        (wav(b"\0" * 8, form(0x55)), "is compressed (format 85)"),
        (wav(b"\0" * 8, form(0xFFFE, more=struct.pack("<HHIH", 22, 16, 4, 7))), "is compressed (format 7)"),
        (wav(b"\0" * 8, form(0xFFFE)), "is compressed (format 65534)"),
        (wav(b"\0" * 6, form(bits=24)), "has 24-bit PCM samples"),
        (wav(b"\0" * 8, form(3, bits=64)), "has 64-bit float samples"),
        (wav(pcm(0), form(channels=0)), "0 channels of 16 bits"),
        (wav(pcm(0), form(stride=4)), "1 channels of 16 bits take 4 bytes"),
        (wav(b""), "has no samples"),
        (wav(b"\0\0\0"), "is cut short: its last sample is not complete"),
        (wav(pcm(0), form(channels=2)), "is cut short: its last sample is not complete"),
        (wav(pcm(0, 0, 0))[:-2], "is cut short: its samples end before they should"),
        (wav(pcm(0))[:44], "is cut short: its samples end before they should"),
        (wav(pcm(0))[:40], "is cut short: it has no samples"),
        (wav(pcm(0), form()[:14]), "the description of its samples is not complete"),
        (riff(chunk(b"data", pcm(0)), chunk(b"fmt ", form())), "before it says what they are"),
        (riff(chunk(b"LIST", b"")), "has no description of its samples"),
        (wav(floats(0, math.nan), form(3, bits=32)), "infinite or not a number"),
        (wav(floats(math.inf), form(3, bits=32)), "infinite or not a number"),
    ],
)
def test_what_is_no_sound_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        frames(data, PARAM, 20)
    assert reason in caught.value.message
    assert caught.value.message.startswith("The sound ")
    assert "\n" not in caught.value.message
    assert caught.value.param == PARAM


def test_a_sound_may_fill_the_room_and_no_more() -> None:
    sound = wav(pcm(*range(1601)), form(channels=1))
    assert len(frames(sound, PARAM, 3)) == 3
    for room in (2, 0, -1):
        with pytest.raises(BadRequest, match=r"^The sound is too long: it lasts 0\.1 seconds") as caught:
            frames(sound, PARAM, room)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", PARAM)


@given(st.binary(max_size=80), st.integers(0, 60))
def test_any_bytes_are_a_sound_or_refused(noise: bytes, at: int) -> None:
    data = wav(pcm(1, 2, 3))
    for hostile in (noise, data[:at] + noise, data[:at] + noise + data[at + len(noise) :]):
        with suppress(BadRequest):
            assert all(map(math.isfinite, samples(hostile, PARAM)))
