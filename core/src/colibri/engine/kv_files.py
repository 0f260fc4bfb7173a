"""KV files: the conversation that a slot holds, with everything needed to go on with it.

A file begins with a magic, a version, and the length and checksum of its header, which is MessagePack. Then follow the
tokens as signed 64-bit numbers (below 0 the marks of sounds, see frames.mark_of), the contents of each part, and the CRC-32
of all before. A part is what one runtime holds, the model's or its draft head's: numbers as float32 as far as they must
stay exact, and then rows, rounded as the header says. All is little-endian.

The checksum is there for accidents, such as a disk that lies; CRC-32 finds all flips and nearly all else, as fast as
memory, and comes with Python. Against malice nothing helps but to check every length before it is used.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from ..compute.rounding import Rounding, restored, rounded, rounded_bytes
from ..compute.runtime import Blank, Image, Runtime

MAGIC, VERSION = b"COLIKV\r\n", 1

_BEGIN = struct.Struct("<8sIII")
_END = struct.Struct("<I")

#: Why a model's files are not another's.
OTHERS = "belongs to another model, or to this one before its files were changed"

#: Longest header, in bytes.
_MOST_HEADER = 1 << 16

#: Numbers moved at a time, whole blocks of any rounding.
PIECE = 1 << 20

#: How much larger than the model's a draft head's part may be: what nobody needs is read as well, and a file may be hollow.
_MOST_TIMES = 8

#: Numbers of a part, at most: sizes then stay far from what a file can't have.
_MOST_NUMBERS = 1 << 48


class Part(Struct, frozen=True):
    """What one runtime holds (see compute.runtime.Image); `identity` is the runtime's."""

    identity: str
    length: int
    snapshots: tuple[int, ...]
    exact: int
    size: int

    def bytes(self, rounding: Rounding) -> int:
        """Bytes of its contents."""
        return 4 * self.exact + rounded_bytes(rounding, self.size - self.exact)


class Header(Struct, frozen=True):
    """What a file holds: the model's part, and perhaps its draft head's."""

    tokens: int
    rounding: Rounding
    parts: tuple[Part, ...]

    @property
    def identity(self) -> str:
        """The model it belongs to."""
        return self.parts[0].identity


class Unusable(Exception):
    """Why a file is ignored, in words that follow its name."""


def encode(tokens: Sequence[int], images: Sequence[tuple[str, Image]], rounding: Rounding) -> Iterator[bytes]:
    """A file in pieces: `tokens`, and what runtimes hold of them, each with its identity, the model's first."""
    parts = tuple(
        Part(identity, image.length, tuple(image.snapshots), image.exact, image.size) for identity, image in images
    )
    header = msgspec.msgpack.encode(Header(len(tokens), rounding, parts))
    checksum = 0
    for piece in _pieces(header, tokens, images, rounding):
        checksum = zlib.crc32(piece, checksum)
        yield piece
    yield _END.pack(checksum)


def _pieces(
    header: bytes, tokens: Sequence[int], images: Sequence[tuple[str, Image]], rounding: Rounding
) -> Iterator[bytes]:
    yield _BEGIN.pack(MAGIC, VERSION, len(header), zlib.crc32(header))
    yield header
    yield _little(array("q", tokens)).tobytes()
    for _, image in images:
        for begin, count, exact in _cuts(image.exact, image.size):
            yield rounded("f32" if exact else rounding, image.read(begin, count))


def _cuts(exact: int, size: int) -> Iterator[tuple[int, int, bool]]:
    """Where the pieces of a part begin, how many numbers each has, and whether they are exact."""
    for first, end in ((0, exact), (exact, size)):
        for begin in range(first, end, PIECE):
            yield begin, min(PIECE, end - begin), end == exact


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def owner(path: Path) -> str | None:
    """The identity of the model that a file belongs to, None if there is no such file. Raises Unusable if nobody can say."""
    try:
        with _open(path) as stream:
            return _read_header(stream).identity
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror or error}") from None


def load(path: Path, runtimes: Sequence[Runtime], slot: int) -> list[int]:
    """Fill a slot of the model's runtime (the first) and of its draft head's, if there is one; returns its tokens.

    Raises Unusable, and the slot is then empty.
    """
    try:
        with _open(path) as stream:
            return _load(stream, runtimes, slot)
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror or error}") from None


def _open(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hold anybody up
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unusable("is not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _read_header(stream: BinaryIO) -> Header:
    try:
        begin = _read(stream, _BEGIN.size)
    except Unusable:
        raise Unusable("is too short for a KV file") from None
    magic, version, length, checksum = _BEGIN.unpack(begin)
    if magic != MAGIC:
        raise Unusable("is not a KV file of this program")
    if version != VERSION:
        raise Unusable(f"has version {version}, this program reads version {VERSION}")
    data = _read(stream, length) if length <= _MOST_HEADER else b""
    if not data or zlib.crc32(data) != checksum:
        raise Unusable("has a damaged header")
    try:
        header = msgspec.msgpack.decode(data, type=Header)
    except msgspec.DecodeError as error:
        raise Unusable(f"has a header that can't be read: {error}") from None
    names = {part.identity for part in header.parts}
    agreed = 1 <= len(header.parts) == len(names) <= 2 and header.parts[0].length == header.tokens <= _MOST_NUMBERS
    for part in header.parts if agreed else ():
        agreed &= 0 <= part.exact <= part.size <= min(_MOST_NUMBERS, _MOST_TIMES * header.parts[0].size)
        agreed &= all(1 <= length <= header.tokens for length in (part.length, *part.snapshots))
    if not agreed:
        raise Unusable("has a header that contradicts itself")
    return header


def _load(stream: BinaryIO, runtimes: Sequence[Runtime], slot: int) -> list[int]:
    header, runtime = _read_header(stream), runtimes[0]
    if header.identity != runtime.identity:
        raise Unusable(OTHERS)
    if header.tokens > runtime.context:
        raise Unusable(f"holds {header.tokens} tokens, the context has room for {runtime.context} (see --ctx)")
    rest = 8 * header.tokens + sum(part.bytes(header.rounding) for part in header.parts) + _END.size
    size, wanted = os.fstat(stream.fileno()).st_size, stream.tell() + rest
    if size != wanted:
        raise Unusable(f"has {size} bytes instead of {wanted}")
    stream.seek(0)
    checksum = zlib.crc32(_read(stream, wanted - rest))
    data = _read(stream, 8 * header.tokens)
    checksum = zlib.crc32(data, checksum)
    tokens = _little(array("q", data)).tolist()
    if max(tokens) >= runtime.vocab or (min(tokens) < 0 and runtime.codes is None):
        raise Unusable("holds tokens that this model does not have")
    blanks: list[Blank] = []
    for part in header.parts:
        blank: Blank | None = None
        for each in runtimes:
            if each.identity == part.identity:
                blank = _blank(each, slot, part)
                blanks.append(blank)
        for begin, count, exact in _cuts(part.exact, part.size):
            rounding: Rounding = "f32" if exact else header.rounding
            data = _read(stream, rounded_bytes(rounding, count))
            checksum = zlib.crc32(data, checksum)
            if blank is not None:
                blank.write(begin, restored(rounding, data, count))
    if _read(stream, _END.size) != _END.pack(checksum):
        raise Unusable("is damaged: its checksum is wrong")
    for blank in blanks:
        blank.adopt()
    return tokens


def _blank(runtime: Runtime, slot: int, part: Part) -> Blank:
    try:
        blank = runtime.blank(slot, part.length, part.snapshots)
    except ValueError as error:
        raise Unusable(f"does not fit this model: {error}") from None
    except MemoryError:
        raise Unusable("does not fit into memory") from None
    if (blank.exact, blank.size) != (part.exact, part.size):
        raise Unusable("does not fit this model: its states have other sizes")
    return blank


def _read(stream: BinaryIO, count: int) -> bytes:
    """So many bytes, in as many calls as the system needs for them."""
    data = stream.read(count)
    while len(data) < count:
        more = stream.read(count - len(data))
        if not more:
            raise Unusable("is cut short")
        data += more
    return data
