"""Sounds: transformers' frames of the files in tests/data/audio, and what is no sound."""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.errors import BadRequest
from colibri_inkling.audio import BANDS, LEVELS, RATE, count, frames, levels

DATA = Path(__file__).parent / "data" / "audio"
NAMES = ("voice", "sweep", "silence")
PARAM = "messages.0.content.0"


def wav(values: Iterable[int], rate: int = RATE) -> bytes:
    body = array("h", values).tobytes()
    described = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVE" + described + b"data" + struct.pack("<I", len(body)) + body


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


@pytest.mark.parametrize(
    ("data", "reason"), [(b"OggS" + bytes(60), "is no WAV file"), (wav([0], 44100), "has 44100 samples a second, 16000 are")]
)
def test_what_is_no_sound_that_the_model_can_hear_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=f"^The sound {reason}") as caught:
        frames(data, PARAM, 20)
    assert caught.value.param == PARAM


def test_a_sound_may_fill_the_room_and_no_more() -> None:
    sound = wav(range(1601))
    assert len(frames(sound, PARAM, 3)) == 3
    for room in (2, 0, -1):
        with pytest.raises(BadRequest, match=r"^The sound is too long: it lasts 0\.1 seconds") as caught:
            frames(sound, PARAM, room)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", PARAM)
