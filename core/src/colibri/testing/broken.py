"""Broken model files: a corpus that every reader has to refuse in one line, and that must never crash anything.

    python -m colibri.testing.broken FOLDER

writes it, one checkpoint a case, for tests of other programs or under a sanitiser.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoints import write_gguf, write_safetensors

#: Tensors of the file that every case starts from.
SHAPES = {"a.weight": (4, 32), "b.weight": (32,), "c.weight": (8, 32)}


def write_corpus(folder: Path) -> list[Path]:
    """Write all cases below `folder`; returns the path of each checkpoint (a folder, or a GGUF file)."""
    found = []
    for name, data in broken_safetensors(folder):
        case = folder / f"safetensors-{name}"
        case.mkdir(parents=True, exist_ok=True)
        (case / "config.json").write_text('{"model_type": "none"}', encoding="utf-8")
        (case / "model.safetensors").write_bytes(data)
        found.append(case)
    for name, data in broken_gguf(folder):
        case = folder / f"{name}.gguf"
        case.write_bytes(data)
        found.append(case)
    return found


def broken_safetensors(scratch: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of broken safetensors files. `scratch` is a folder to work in."""
    good = write_safetensors(scratch / "good.safetensors", _arrays()).read_bytes()
    length = struct.unpack_from("<Q", good)[0]
    header, data = json.loads(good[8 : 8 + length]), good[8 + length :]

    def file(text: str | bytes, claim: int | None = None, rest: bytes = data) -> bytes:
        raw = text if isinstance(text, bytes) else text.encode()
        raw += b" " * (-len(raw) % 8)
        return struct.pack("<Q", len(raw) if claim is None else claim) + raw + rest

    def edited(edit: Callable[[dict[str, Any]], object], rest: bytes = data) -> bytes:
        copy = json.loads(json.dumps(header))
        edit(copy)
        return file(json.dumps(copy), rest=rest)

    def entry(**values: object) -> bytes:
        return edited(lambda h: h["b.weight"].update(values))

    for end in (0, 4, 8, 9, 8 + length // 2, 7 + length, 8 + length, len(good) // 2, len(good) - 1):
        yield f"cut-at-{end}", good[:end]
    for claim in (0, 1, length - 7, len(good), 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
        yield f"header-of-{claim}", struct.pack("<Q", claim) + good[8:]
    yield "longer", good + b"\0" * 64
    yield "not-utf8", file(b'{"\xff\xfe": {}}')
    yield "not-json", file("{" + "x" * 40)
    yield "a-list", file("[1, 2, 3]")
    yield "a-number", file("12345678")
    yield "deep", file("[" * 100_000)
    yield "deep-objects", file('{"a":' * 100_000)
    yield "nan", file(json.dumps(header).replace("[4, 32]", "[4, NaN]"))
    yield "infinity", file(json.dumps(header).replace("[4, 32]", "[4, Infinity]"))
    yield "long-number", file(json.dumps(header).replace("[4, 32]", f"[4, {'9' * 5000}]"))
    yield "twice", file(json.dumps(header)[:-1] + ', "b.weight": ' + json.dumps(header["b.weight"]) + "}")
    yield "nul", file(b"\0" * 64)
    yield "entry-null", edited(lambda h: h.update({"b.weight": None}))
    yield "entry-list", edited(lambda h: h.update({"b.weight": [1]}))
    yield "entry-empty", edited(lambda h: h.update({"b.weight": {}}))
    yield "dtype-number", entry(dtype=5)
    yield "dtype-wider", entry(dtype="F64")
    yield "dtype-narrower", entry(dtype="F16")
    yield "shape-negative", entry(shape=[-32])
    yield "shape-two-negatives", entry(shape=[-4, -8])
    yield "shape-fraction", entry(shape=[32.0])
    yield "shape-true", entry(shape=[True, 32])
    yield "shape-text", entry(shape="32")
    yield "shape-missing", entry(shape=None)
    yield "shape-smaller", entry(shape=[16])
    yield "shape-larger", entry(shape=[33])
    yield "shape-overflow", entry(shape=[1 << 61, 1 << 61, 64])
    yield "shape-wraps", entry(shape=[1 << 60, 16, 32])
    yield "shape-many", entry(shape=[1] * 8 + [32])
    yield "offsets-swapped", entry(data_offsets=[640, 512])
    yield "offsets-negative", entry(data_offsets=[-128, 0])
    yield "offsets-outside", entry(data_offsets=[1 << 40, (1 << 40) + 128])
    yield "offsets-overflow", entry(data_offsets=[(1 << 64) - 128, 1 << 64])
    yield "offsets-three", entry(data_offsets=[512, 640, 640])
    yield "offsets-text", entry(data_offsets="512")
    yield "offsets-overlap", entry(data_offsets=[256, 384])
    yield "offsets-shared", entry(data_offsets=[0, 128])
    yield "hole", edited(lambda h: h.pop("b.weight"))
    yield "name-empty", edited(lambda h: h.update({"": h.pop("b.weight")}))
    yield "name-long", edited(lambda h: h.update({"x" * 10_000: h.pop("b.weight")}))


def broken_gguf(scratch: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of broken GGUF files. `scratch` is a folder to work in."""
    facts = {"general.architecture": "none", "list": ["a", "b"], "numbers": [1, 2, 3], "yes": True}
    good = write_gguf(scratch / "good.gguf", facts, _arrays(), dtype="q8_0").read_bytes()
    first = good.index(b"a.weight") - 8

    def counts(tensors: int, pairs: int) -> bytes:
        return good[:8] + struct.pack("<QQ", tensors, pairs) + good[24:]

    def file(pairs: bytes = b"", infos: bytes = b"", count: int = 1, data: int = 4096) -> bytes:
        return b"GGUF" + struct.pack("<IQQ", 3, count if infos else 0, count if pairs else 0) + pairs + infos + b"\0" * data

    def pair(kind: int, payload: bytes, key: bytes = b"key") -> bytes:
        return file(pairs=_text(key) + struct.pack("<I", kind) + payload)

    def tensor(dims: list[int], kind: int = 0, offset: int = 0, name: bytes = b"t", count: int | None = None) -> bytes:
        shape = struct.pack(f"<I{len(dims)}Q", len(dims) if count is None else count, *dims)
        return _text(name) + shape + struct.pack("<IQ", kind, offset)

    for end in (0, 3, 4, 8, 16, 23, 24, 40, first, first + 8, first + 20, first + 60, len(good) // 2, len(good) - 1):
        yield f"cut-at-{end}", good[:end]
    yield "magic", b"GGML" + good[4:]
    for version in (0, 1, 4, 1 << 31):
        yield f"version-{version}", good[:4] + struct.pack("<I", version) + good[8:]
    yield "big-endian", good[:4] + struct.pack(">I", 3) + good[8:]
    for lie in (5, 1 << 31, (1 << 63) - 1, (1 << 64) - 1):
        yield f"tensors-{lie}", counts(lie, 4)
        yield f"pairs-{lie}", counts(3, lie)
    yield "pairs-fewer", counts(3, 2)
    yield "key-long", file(pairs=struct.pack("<Q", 1 << 62) + b"key")
    yield "key-over-limit", file(pairs=_text(b"k" * 4000) + struct.pack("<IB", 0, 1), data=0)
    yield "key-not-utf8", pair(0, b"\1", key=b"\xff\xfe")
    yield "kind-unknown", pair(99, b"\0" * 8)
    yield "boolean-two", pair(7, b"\2")
    yield "text-long", pair(8, struct.pack("<Q", (1 << 64) - 1))
    yield "text-not-utf8", pair(8, _text(b"\xc3\x28"))
    yield "array-kind", pair(9, struct.pack("<IQ", 77, 1) + b"\0" * 8)
    for kind, name in ((0, "bytes"), (8, "texts"), (9, "arrays"), (10, "longs")):
        yield f"array-{name}-many", pair(9, struct.pack("<IQ", kind, 1 << 61))
        yield f"array-{name}-overflow", pair(9, struct.pack("<IQ", kind, (1 << 64) - 1))
    yield "array-text-long", pair(9, struct.pack("<IQ", 8, 1) + struct.pack("<Q", 1 << 63))
    yield "array-text-not-utf8", pair(9, struct.pack("<IQ", 8, 1) + _text(b"\xff"))
    yield "array-booleans", pair(9, struct.pack("<IQ", 7, 3) + b"\0\1\2")
    yield "array-deep", pair(9, struct.pack("<IQ", 9, 1) * 100_000)
    yield (
        "array-bomb",
        pair(9, struct.pack("<IQ", 9, 300) + struct.pack("<IQ", 0, 20_000_000)),
    )
    yield "key-twice", file(pairs=(_text(b"key") + struct.pack("<IB", 0, 1)) * 2, count=2)
    yield "name-twice", file(infos=tensor([32]) + tensor([32], offset=128), count=2)
    yield "name-long", file(infos=tensor([32], name=b"n" * 5000))
    yield "name-not-utf8", file(infos=tensor([32], name=b"\xff"))
    for number in (0, 5, 1 << 31, (1 << 32) - 1):
        yield f"dimensions-{number}", file(infos=tensor([32], count=number))
    yield "shape-zero", file(infos=tensor([32, 0]))
    yield "shape-overflow", file(infos=tensor([1 << 32, 1 << 32]))
    yield "shape-wraps", file(infos=tensor([32, 1 << 59, 1 << 5]))
    yield "shape-larger", file(infos=tensor([2048, 2048]))
    yield "shape-no-blocks", file(infos=tensor([33], kind=8))
    yield "shape-no-long-blocks", file(infos=tensor([128, 2], kind=12))
    yield "offset-unaligned", file(infos=tensor([32], offset=4))
    yield "offset-outside", file(infos=tensor([32], offset=1 << 40))
    yield "offset-overflow", file(infos=tensor([32], offset=(1 << 64) - 32))
    yield "overlap", file(infos=tensor([64]) + tensor([64], offset=128, name=b"u"), count=2)
    for alignment in (0, 3, 4, 1 << 31):
        key = _text(b"general.alignment") + struct.pack("<II", 4, alignment)
        yield f"alignment-{alignment}", file(pairs=key, infos=tensor([32]))
    yield "alignment-text", file(pairs=_text(b"general.alignment") + struct.pack("<I", 8) + _text(b"32"), infos=tensor([32]))
    yield "split", file(pairs=_text(b"split.count") + struct.pack("<IH", 2, 3), infos=tensor([32]))


def _arrays() -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.linspace(-1, 1, int(np.prod(shape))).reshape(shape) for name, shape in SHAPES.items()}


def _text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    print(f"{len(write_corpus(target))} broken checkpoints in {target}")
