"""Reading safetensors: where the tensors of a folder of shards lie. Every number in a header is checked before use.

The format: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .checkpoint import Checkpoint, StoredBank, Tensor, check_layout, file_size, shards
from .config import parse_json
from .container import METADATA, unpacked
from .gguf import read_header as read_gguf_header

#: Longest header (some 250000 tensors in one file), and longest config.json or index, in bytes.
MAX_HEADER = 32 << 20
MAX_JSON = 64 << 20
MAX_NAME = 512
MAX_DIMS = 8

#: A shard lies beside its index: no path leads out of the folder.
_SHARD_NAME = re.compile(r"[^/\\\x00-\x1f]{1,240}\.safetensors")

#: The format's words -> storage types, and -> bits per value. A word not listed here keeps its tensor's size unchecked.
_STORAGE = {"F32": "f32", "BF16": "bf16", "F16": "f16", "I64": "i64"}
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


def open_folder(folder: Path) -> Checkpoint:
    """A folder with config.json and one or more shards, with or without an index. Raises CheckpointError."""
    gguf = folder / METADATA
    config = {} if gguf.is_file() else read_json(folder / "config.json")
    tensors: dict[str, Tensor] = {}
    banks: dict[str, StoredBank] = {}
    index = folder / "model.safetensors.index.json"
    mapped = read_index(index) if index.exists() else {}
    for file in sorted({folder / name for name in mapped.values()}) if mapped else _unlisted(folder):
        stored, metadata = read_file(file)
        found, own = unpacked(stored, metadata, file)
        banks |= own
        for name, tensor in found.items():
            if name in tensors:
                raise CheckpointError(f"is also in {tensors[name].file.name}", file=file, tensor=name)
            tensors[name] = tensor
    for name, shard in mapped.items():
        if name not in tensors or tensors[name].file.name != shard:
            raise CheckpointError(f"is listed by {index.name} but not in this file", file=folder / shard, tensor=name)
    if gguf.is_file():
        return Checkpoint(gguf, "gguf", {}, read_gguf_header(gguf)[0], tensors, banks)
    return Checkpoint(folder, "safetensors", config, {}, tensors, banks)


def _unlisted(folder: Path) -> list[Path]:
    whole = folder / "model.safetensors"
    if whole.exists():
        return [whole]
    found = sorted(path for path in folder.iterdir() if path.name.endswith(".safetensors"))
    if not found:
        raise CheckpointError("lists no safetensors shards", file=folder)
    return sorted({shard for path in found for shard in shards(path)})


def read_json(file: Path, *, strict: bool = False) -> dict[str, Any]:
    """A JSON object of at most MAX_JSON bytes."""
    if file_size(file) > MAX_JSON:
        raise CheckpointError(f"is larger than {MAX_JSON} bytes", file=file)
    return parse_json(file.read_bytes(), file, strict=strict)


def read_index(file: Path) -> dict[str, str]:
    """The index's `weight_map`: tensor name -> shard's file name beside the index."""
    mapped = read_json(file, strict=True).get("weight_map")
    if not isinstance(mapped, dict) or not mapped:
        raise CheckpointError("weight_map must be an object that names at least one tensor", file=file)
    for name, shard in mapped.items():
        if not isinstance(shard, str) or _SHARD_NAME.fullmatch(shard) is None:
            raise CheckpointError("weight_map must name a .safetensors file beside it", file=file, tensor=name[:MAX_NAME])
    return mapped


def read_header(file: Path) -> dict[str, Tensor]:
    """The tensors of one shard, by name. Raises CheckpointError."""
    return read_file(file)[0]


def read_file(file: Path) -> tuple[dict[str, Tensor], Any]:
    """The same, and the metadata as the file has them."""
    size = file_size(file)
    with file.open("rb") as stream:
        start = stream.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length < 2 or length > size - 8:
            raise CheckpointError(f"is cut short or no safetensors file ({size} bytes)", file=file)
        if length > MAX_HEADER:
            raise CheckpointError(f"its header of {length} bytes is longer than {MAX_HEADER}", file=file)
        text = stream.read(length)
    if len(text) != length:
        raise CheckpointError("is cut short", file=file)
    header = parse_json(text, file, strict=True)
    metadata = header.pop("__metadata__", None)
    base = 8 + length
    tensors = {name: _tensor(file, name, entry, base, size - base) for name, entry in header.items()}
    check_layout(list(tensors.values()))
    covered = sum(tensor.nbytes for tensor in tensors.values())
    if covered != size - base:
        raise CheckpointError(f"{size - base - covered} of its bytes belong to no tensor", file=file)
    return tensors, metadata


def _tensor(file: Path, name: str, entry: Any, base: int, room: int) -> Tensor:
    def broken(reason: str) -> CheckpointError:
        return CheckpointError(reason, file=file, tensor=name[:MAX_NAME])

    if not name or len(name) > MAX_NAME:
        raise broken(f"its name must have 1 to {MAX_NAME} characters")
    if not isinstance(entry, dict):
        raise broken("must be described by an object")
    word, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(word, str) or len(word) > 32:
        raise broken("dtype must be a string")
    if not isinstance(shape, list) or len(shape) > MAX_DIMS or not all(_is_count(n) for n in shape):
        raise broken(f"shape must be a list of at most {MAX_DIMS} whole numbers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(n) for n in offsets):
        raise broken("data_offsets must be two whole numbers")
    begin, end = offsets
    if not begin <= end <= room:
        raise broken(f"data_offsets [{begin}, {end}] leave the file, which has {room} bytes of data")
    storage, bits = _STORAGE.get(word), _BITS.get(word, 0)
    values = 1
    for n in shape:
        values *= n
    if bits and values * bits != 8 * (end - begin):
        raise broken(f"{word} {shape} takes {values * bits // 8} bytes, the file gives it {end - begin}")
    return Tensor(name, storage or word, tuple(shape), file, base + begin, end - begin)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
