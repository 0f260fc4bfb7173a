"""WAV files: what samples they hold, and what is no sound."""

from __future__ import annotations

import math
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.wav import samples
from colibri.errors import BadRequest

RATE = 16_000
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


def test_samples_of_either_kind() -> None:
    assert list(samples(wav(pcm(0, 16384, -32768)), PARAM, RATE)) == [0.0, 0.5, -1.0]
    assert list(samples(wav(floats(0, 0.5, -1.5), form(3, bits=32)), PARAM, RATE)) == [0.0, 0.5, -1.5]


def test_channels_are_mixed() -> None:
    assert list(samples(wav(pcm(16384, -16384, 16384, 0), form(channels=2)), PARAM, RATE)) == [0.0, 0.25]
    assert list(samples(wav(floats(0.5, 0.25, 0.75), form(3, channels=3, bits=32)), PARAM, RATE)) == [0.5]


def test_an_extensible_description_says_what_the_samples_are() -> None:
    more = struct.pack("<HHIH", 22, 32, 4, 3) + bytes.fromhex("000000001000800000aa00389b71")
    assert list(samples(wav(floats(0.5), form(0xFFFE, bits=32, more=more)), PARAM, RATE)) == [0.5]


def test_other_chunks_are_passed_over() -> None:
    data = riff(chunk(b"LIST", b"abc"), chunk(b"fmt ", form()), chunk(b"fact", b"\0" * 4), chunk(b"data", pcm(16384)))
    assert list(samples(data, PARAM, RATE)) == [0.5]


def test_samples_whose_number_the_writer_did_not_know() -> None:
    data = riff(chunk(b"fmt ", form()), chunk(b"data", pcm(16384, 0), 0xFFFFFFFF))
    assert list(samples(data, PARAM, RATE)) == [0.5, 0.0]


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
        samples(data, PARAM, RATE)
    assert reason in caught.value.message
    assert caught.value.message.startswith("The sound ")
    assert "\n" not in caught.value.message
    assert caught.value.param == PARAM


def test_a_sound_may_be_as_long_as_there_is_room_and_no_longer() -> None:
    sound = wav(pcm(*range(1601)))
    assert len(samples(sound, PARAM, RATE, 1601)) == 1601
    with pytest.raises(BadRequest, match=r"^The sound is too long: it lasts 0\.1 seconds") as caught:
        samples(sound, PARAM, RATE, 1600)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", PARAM)
    with pytest.raises(BadRequest, match="has 16000 samples a second, 8000 are needed"):
        samples(sound, PARAM, 8000)


@given(st.binary(max_size=80), st.integers(0, 60))
def test_any_bytes_are_a_sound_or_refused(noise: bytes, at: int) -> None:
    data = wav(pcm(1, 2, 3))
    for hostile in (noise, data[:at] + noise, data[:at] + noise + data[at + len(noise) :]):
        with suppress(BadRequest):
            assert all(map(math.isfinite, samples(hostile, PARAM, RATE)))
