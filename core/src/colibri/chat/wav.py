"""WAV files, which requests bring: RIFF chunks with samples of 16-bit integers or 32-bit floats."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterator

from ..errors import BadRequest

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE

#: (format, bits) -> the array type of such samples and what they are divided by.
_SAMPLES = {(_PCM, 16): ("h", 32768.0), (_FLOAT, 32): ("f", 1.0)}

#: The size of a chunk whose writer could not know it; it goes on to the end of the file.
_OPEN = 0xFFFFFFFF


def samples(data: bytes, param: str, rate: int, most: int = sys.maxsize) -> array[float]:
    """The sound of a WAV file of `rate` samples a second, all channels mixed into one; full scale is -1 to 1.

    Raises BadRequest, about the field `param`, for any other file, and for one of more than `most` samples.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _wrong(param, "is no WAV file (RIFF)")
    layout: tuple[str, float, int] | None = None
    for name, body, whole in _chunks(data):
        if name == b"fmt ":
            layout = _layout(body, param, rate)
        elif name == b"data":
            if layout is None:
                raise _wrong(param, "has samples before it says what they are")
            if not whole:
                raise _wrong(param, "is cut short: its samples end before they should")
            return _mixed(body, *layout, param, rate, most)
    raise _wrong(param, "is cut short: it has no samples" if layout is not None else "has no description of its samples")


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview, bool]]:
    """Name and body of each chunk, and whether all of it is there."""
    view, at = memoryview(data), 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8
        size = len(data) - at if size == _OPEN else size
        yield name, view[at : at + size], at + size <= len(data)
        at += size + size % 2  # chunks begin at even places


def _layout(body: memoryview, param: str, needed: int) -> tuple[str, float, int]:
    """Array type, divisor and channels of the samples."""
    if len(body) < 16:
        raise _wrong(param, "is cut short: the description of its samples is not complete")
    form, channels, rate, _, stride, bits = struct.unpack_from("<HHIIHH", body)
    if form == _EXTENSIBLE and len(body) >= 26:
        form = struct.unpack_from("<H", body, 24)[0]
    if form not in (_PCM, _FLOAT):
        raise _wrong(param, f"is compressed (format {form}); send 16-bit PCM or 32-bit float samples")
    if (form, bits) not in _SAMPLES:
        kind = "float" if form == _FLOAT else "PCM"
        raise _wrong(param, f"has {bits}-bit {kind} samples; send 16-bit PCM or 32-bit float samples")
    if rate != needed:
        raise _wrong(param, f"has {rate} samples a second, {needed} are needed; resample it")
    if channels == 0 or stride != channels * bits // 8:
        raise _wrong(param, f"says that {channels} channels of {bits} bits take {stride} bytes, which they don't")
    kind, divisor = _SAMPLES[form, bits]
    return kind, divisor, channels


def _mixed(body: memoryview, kind: str, divisor: float, channels: int, param: str, rate: int, most: int) -> array[float]:
    found = array(kind)
    length, rest = divmod(len(body), channels * found.itemsize)
    if rest or not length:
        raise _wrong(param, "is cut short: its last sample is not complete" if rest else "has no samples")
    if length > most:
        reason = f"is too long: it lasts {length / rate:.1f} seconds, the context has room for {most / rate:.1f}"
        raise _wrong(param, reason, "context_length_exceeded")
    found.frombytes(body)
    if sys.byteorder == "big":
        found.byteswap()
    if kind == "f" and not all(map(math.isfinite, found)):
        raise _wrong(param, "has a sample that is infinite or not a number")
    scale = 1 / (divisor * channels)
    if channels == 1:
        return array("d", (value * scale for value in found))
    return array("d", (sum(values) * scale for values in zip(*(found[c::channels] for c in range(channels)), strict=True)))


def _wrong(param: str, reason: str, code: str | None = None) -> BadRequest:
    return BadRequest(f"The sound {reason}.", param=param, code=code)
