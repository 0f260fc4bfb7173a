"""Reading GGUF (versions 2 and 3, little-endian, whole or split): metadata, and where each tensor lies.

Every length, count and offset is checked against the file before it is used, and memory is bounded by MAX_HEADER and
MAX_ITEMS whatever the file claims. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import CheckpointError
from .checkpoint import Checkpoint, Tensor, check_layout, file_size, shards

#: Most bytes of metadata and tensor descriptions, and most array items in them (the largest vocabularies need 2 million).
MAX_HEADER = 256 << 20
MAX_ITEMS = 8 << 20
MAX_NAME = 512
MAX_DEPTH = 4

#: GGML type number -> (word, values per block, bytes per block); 0 bytes where the type is too old to be known.
_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 36),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
}

#: Metadata type number -> struct letter; 8 is a string, 9 an array, 7 a boolean.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY, _BOOL = 8, 9, 7
_LENGTH = struct.Struct("<Q")


class _Header:
    """A cursor over the beginning of a file, reading on only as far as the content leads."""

    def __init__(self, stream: BinaryIO, file: Path, size: int) -> None:
        self.stream, self.file, self.size = stream, file, size
        self.buffer = bytearray()
        self.at = 0
        self.items = 0

    def broken(self, reason: str) -> CheckpointError:
        return CheckpointError(reason, file=self.file)

    def need(self, count: int) -> int:
        """Make `count` bytes available at the cursor; returns the cursor and moves it behind them."""
        start, end = self.at, self.at + count
        if end > self.size:
            raise self.broken(f"is cut short: {end} bytes are needed, it has {self.size}")
        if end > MAX_HEADER:
            raise self.broken(f"its header is longer than {MAX_HEADER} bytes")
        if end > len(self.buffer):
            self.buffer += self.stream.read(max(end, 2 * len(self.buffer), 1 << 16) - len(self.buffer))
            if end > len(self.buffer):
                raise self.broken("was cut short while it was read")
        self.at = end
        return start

    def scalar(self, letter: str) -> Any:
        value = struct.Struct("<" + letter)
        return value.unpack_from(self.buffer, self.need(value.size))[0]

    def count(self, what: str, least_bytes: int) -> int:
        """A 64-bit count of things that take at least `least_bytes` each: more than the file can hold is a lie."""
        number: int = self.scalar("Q")
        if number > (self.size - self.at) // least_bytes:
            raise self.broken(f"claims {number} {what}, more than the file can hold")
        return number

    def text(self, what: str, most: int = MAX_HEADER) -> str:
        length: int = self.scalar("Q")
        if length > most:
            raise self.broken(f"{what} of {length} bytes is too long")
        start = self.need(length)
        try:
            return self.buffer[start : self.at].decode("utf-8")
        except UnicodeDecodeError:
            raise self.broken(f"{what} is not UTF-8 text") from None

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text(f"metadata {key!r}")
        if kind == _ARRAY:
            return self.array(key, depth)
        if kind not in _SCALARS:
            raise self.broken(f"metadata {key!r} has the unknown type {kind}")
        value = self.scalar(_SCALARS[kind])
        return self.boolean(value, key) if kind == _BOOL else value

    def boolean(self, value: int, key: str) -> bool:
        if value > 1:
            raise self.broken(f"metadata {key!r} is neither true nor false")
        return value == 1

    def array(self, key: str, depth: int) -> list[Any]:
        if depth >= MAX_DEPTH:
            raise self.broken(f"metadata {key!r} is nested too deeply")
        kind = self.scalar("I")
        letter = _SCALARS.get(kind)
        number = self.count(f"items in metadata {key!r}", struct.calcsize("<" + letter) if letter else 8)
        self.items += number
        if self.items > MAX_ITEMS:
            raise self.broken(f"metadata {key!r} brings the array items to more than {MAX_ITEMS}")
        if kind == _STRING:
            return self.texts(number, key)
        if letter is None:
            return [self.value(kind, key, depth + 1) for _ in range(number)]
        start = self.need(number * struct.calcsize("<" + letter))
        values = struct.unpack_from(f"<{number}{letter}", self.buffer, start)
        return [self.boolean(value, key) for value in values] if kind == _BOOL else list(values)

    def texts(self, number: int, key: str) -> list[str]:
        """Strings in bulk: a vocabulary has hundreds of thousands, so the common path is kept short."""
        found: list[str] = []
        buffer, at, unpack = self.buffer, self.at, _LENGTH.unpack_from
        try:
            for _ in range(number):
                start = at + 8
                if start > len(buffer):
                    self.at = at
                    self.need(8)
                end = start + unpack(buffer, at)[0]
                if end > len(buffer):
                    self.at = start
                    self.need(end - start)
                found.append(buffer[start:end].decode("utf-8"))
                at = end
        except UnicodeDecodeError:
            raise self.broken(f"metadata {key!r}: item {len(found)} is not UTF-8 text") from None
        self.at = at
        return found


def open_file(path: Path) -> Checkpoint:
    """A GGUF file, or the whole set a shard belongs to. Raises CheckpointError."""
    files = shards(path)
    metadata, tensors = read_header(files[0])
    count = metadata.get("split.count", 1)
    if count != len(files):
        raise CheckpointError(f"split.count is {count!r}, its name says {len(files)}", file=files[0])
    for number, file in enumerate(files[1:], 1):
        more, shard = read_header(file)
        if more.get("split.no") != number or more.get("split.count") != count:
            raise CheckpointError(f"is not shard {number + 1} of {count} by its own metadata", file=file)
        for name, tensor in shard.items():
            if name in tensors:
                raise CheckpointError(f"is also in {tensors[name].file.name}", file=file, tensor=name)
            tensors[name] = tensor
    total = metadata.get("split.tensors.count", len(tensors))
    if len(files) > 1 and total != len(tensors):
        raise CheckpointError(f"split.tensors.count is {total!r}, the shards hold {len(tensors)}", file=files[0])
    return Checkpoint(files[0], "gguf", {}, metadata, tensors)


def metadata_alone(file: Path) -> bytes:
    """A GGUF file with the metadata of another, and no tensors. Raises CheckpointError."""
    with file.open("rb") as stream:
        header = _Header(stream, file, file_size(file))
        start = header.need(24)
        pairs = struct.unpack_from("<Q", header.buffer, start + 16)[0]
        for _ in range(pairs):
            key = header.text("a metadata key", MAX_NAME)
            header.value(header.scalar("I"), key)
        return bytes(header.buffer[:8]) + struct.pack("<QQ", 0, pairs) + bytes(header.buffer[24 : header.at])


def read_header(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The metadata and the tensors of one file. Raises CheckpointError."""
    size = file_size(file)
    with file.open("rb") as stream:
        header = _Header(stream, file, size)
        if size < 24 or header.scalar("I") != 0x46554747:
            raise CheckpointError("is not a GGUF file", file=file)
        version = header.scalar("I")
        if version & 0xFFFF == 0 and version:
            raise CheckpointError("is a big-endian GGUF file; only little-endian ones can be read", file=file)
        if version not in (2, 3):
            raise CheckpointError(f"is GGUF version {version}; versions 2 and 3 can be read", file=file)
        tensor_count = header.count("tensors", 24)
        pair_count = header.count("metadata pairs", 13)
        metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = header.text("a metadata key", MAX_NAME)
            if key in metadata:
                raise CheckpointError(f"metadata {key!r} appears twice", file=file)
            metadata[key] = header.value(header.scalar("I"), key)
        found: dict[str, tuple[int, list[int], int]] = {}
        for _ in range(tensor_count):
            name = header.text("a tensor's name", MAX_NAME)
            if name in found:
                raise CheckpointError("appears twice", file=file, tensor=name)
            dims = header.scalar("I")
            if not 1 <= dims <= 4:
                raise CheckpointError(f"has {dims} dimensions, 1 to 4 are possible", file=file, tensor=name)
            shape = [header.scalar("Q") for _ in range(dims)]
            found[name] = (header.scalar("I"), shape, header.scalar("Q"))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in (1 << n for n in range(3, 21)):
        raise CheckpointError(f"general.alignment {alignment!r} is no power of two from 8 to 1048576", file=file)
    base = -(-header.at // alignment) * alignment
    tensors = {name: _tensor(file, name, entry, base, size, alignment) for name, entry in found.items()}
    check_layout(list(tensors.values()))
    return metadata, tensors


def _tensor(file: Path, name: str, entry: tuple[int, list[int], int], base: int, size: int, alignment: int) -> Tensor:
    def broken(reason: str) -> CheckpointError:
        return CheckpointError(reason, file=file, tensor=name)

    kind, dims, offset = entry
    values = 1
    for n in dims:
        values *= n
        if n == 0 or values >= 1 << 62:
            raise broken(f"has the impossible shape {dims[::-1]}")
    word, block, block_bytes = _TYPES.get(kind, (f"ggml type {kind}", 1, 0))
    if dims[0] % block:
        raise broken(f"its rows of {dims[0]} values are no whole blocks of {block} ({word})")
    if offset % alignment:
        raise broken(f"its offset {offset} is not a multiple of {alignment}")
    nbytes = values // block * block_bytes
    if base + offset + nbytes > size:
        raise broken(f"ends at byte {base + offset + nbytes}, the file has {size}")
    return Tensor(name, word, tuple(reversed(dims)), file, base + offset, nbytes)
