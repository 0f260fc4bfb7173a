"""How Inkling hears: discrete mel spectrograms (dMel, https://arxiv.org/abs/2407.15835).

Every 50 ms make a frame, of the 100 ms that end with them. The spectrum of a frame is summed up in 80 bands, spaced as ears
hear pitch, and how loud each of them is becomes one of 16 levels.
"""

from __future__ import annotations

import cmath
import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import mul

from colibri.chat.wav import samples

#: Samples a second of what the model hears.
RATE = 16_000

BANDS = 80
LEVELS = 16

_HOP = RATE // 20
_WINDOW = 2 * _HOP

#: Loudness of the lowest and of the highest level, as a power of ten.
_QUIET, _LOUD = -7.0, 2.0

#: What loudness is at least before its logarithm is taken: of one frequency, and of a band.
_FLOOR, _BAND_FLOOR = 1e-5, 1e-10


def frames(data: bytes, param: str, room: int) -> list[bytes]:
    """The frames of a WAV file, each of them the levels of its bands. Raises BadRequest, about the field `param`, also where
    there are more than `room`."""
    return levels(samples(data, param, RATE, max(room, 0) * _HOP))


def count(length: int) -> int:
    """How many frames a sound of `length` samples makes."""
    return -(-length // _HOP)


def levels(sound: array[float]) -> list[bytes]:
    """The frames of a sound at 16 000 samples a second."""
    number = count(len(sound))
    padded = _silence(_WINDOW - _HOP) + sound + _silence(number * _HOP - len(sound))
    found: list[bytes] = []
    for at in range(0, number, 2):  # a lone last frame is its own partner
        one, two = (padded[start : start + _WINDOW] for start in (at * _HOP, min(at + 1, number - 1) * _HOP))
        found += map(_frame, _spectra(one, two))
    return found[:number]


def _silence(length: int) -> array[float]:
    return array("d", bytes(8 * length))


def _frame(loudness: Sequence[float]) -> bytes:
    bands = (sum(map(mul, loudness[start : start + len(weights)], weights)) for start, weights in _bands())
    logs = (math.log10(max(band, _BAND_FLOOR)) for band in bands)
    step = (_LOUD - _QUIET) / (LEVELS - 1)
    return bytes(int((min(max(value, _QUIET), _LOUD) - _QUIET) / step + 0.5) for value in logs)


def _spectra(one: Sequence[float], two: Sequence[float]) -> tuple[list[float], list[float]]:
    """How loud each frequency is in two stretches of sound. One transform serves both: the spectrum of what is real mirrors
    itself."""
    both = _transform(list(map(mul, map(complex, one, two), _hann())))
    half = _WINDOW // 2 + 1
    mirrored = [z.conjugate() for z in (both[0], *both[: half - 2 : -1])]
    pairs = list(zip(both[:half], mirrored, strict=True))
    return [max(abs(a + b) / 2, _FLOOR) for a, b in pairs], [max(abs(a - b) / 2, _FLOOR) for a, b in pairs]


def _transform(x: list[complex]) -> list[complex]:
    """The discrete Fourier transform of a window, by the factors of its length (Stockham's ordering)."""
    run = 1
    for radix, turns in _stages():
        size = len(x) // radix
        parts = [x[part * size : (part + 1) * size] for part in range(radix)]
        made = _twos(*parts) if radix == 2 else _fives(*parts)
        made[1:] = [list(map(mul, values, turned)) for values, turned in zip(made[1:], turns, strict=True)]
        x = [value for at in range(0, size, run) for values in made for value in values[at : at + run]]
        run *= radix
    return x


def _twos(a: list[complex], b: list[complex]) -> list[list[complex]]:
    return [[p + q for p, q in zip(a, b, strict=True)], [p - q for p, q in zip(a, b, strict=True)]]


_COS1, _COS2 = math.cos(0.4 * math.pi), math.cos(0.8 * math.pi)
_SIN1, _SIN2 = math.sin(0.4 * math.pi) * 1j, math.sin(0.8 * math.pi) * 1j


def _fives(*parts: list[complex]) -> list[list[complex]]:
    made: list[tuple[complex, ...]] = []
    for a, b, c, d, e in zip(*parts, strict=True):
        near, far, across, athwart = b + e, c + d, b - e, c - d
        p, q = a + _COS1 * near + _COS2 * far, a + _COS2 * near + _COS1 * far
        r, s = _SIN1 * across + _SIN2 * athwart, _SIN2 * across - _SIN1 * athwart
        made.append((a + near + far, p - r, q - s, q + s, p + r))
    return [list(values) for values in zip(*made, strict=True)]


@lru_cache(maxsize=1)
def _stages() -> list[tuple[int, list[list[complex]]]]:
    """The factors of the window's length, and what the outputs of each are multiplied with."""
    stages: list[tuple[int, list[list[complex]]]] = []
    length, run = _WINDOW, 1
    while length > 1:
        radix = 5 if length % 5 == 0 else 2
        turns = [
            [cmath.exp(-2j * math.pi * (at // run) * k / length) for at in range(_WINDOW // radix)] for k in range(1, radix)
        ]
        stages.append((radix, turns))
        length, run = length // radix, run * radix
    return stages


@lru_cache(maxsize=1)
def _hann() -> list[float]:
    return [0.5 - 0.5 * math.cos(2 * math.pi * n / _WINDOW) for n in range(_WINDOW)]


@lru_cache(maxsize=1)
def _bands() -> list[tuple[int, list[float]]]:
    """Each band's first frequency and its weights: triangles of one area, whose corners are evenly spaced in mel."""
    top = _mel(RATE / 2)
    corners = [_hertz(top * n / (BANDS + 1)) for n in range(BANDS + 2)]
    spacing = RATE / _WINDOW
    found: list[tuple[int, list[float]]] = []
    for (low, mid), (_, high) in pairwise(pairwise(corners)):
        first, last = math.ceil(low / spacing), math.floor(high / spacing)
        weights = [
            max(0.0, min((at * spacing - low) / (mid - low), (high - at * spacing) / (high - mid))) * 2 / (high - low)
            for at in range(first, last + 1)
        ]
        found.append((first, weights))
    return found


#: The mel scale of Slaney's toolbox: linear up to 1000 Hz, then logarithmic.
_LINEAR, _KNEE, _RATIO = 3 / 200, 1000.0, math.log(6.4) / 27


def _mel(hertz: float) -> float:
    return hertz * _LINEAR if hertz < _KNEE else _KNEE * _LINEAR + math.log(hertz / _KNEE) / _RATIO


def _hertz(mel: float) -> float:
    knee = _KNEE * _LINEAR
    return mel / _LINEAR if mel < knee else _KNEE * math.exp(_RATIO * (mel - knee))
