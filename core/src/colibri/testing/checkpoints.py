"""Writing small models: safetensors and GGUF files with weights that follow from a seed, so that tests need no downloads."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .storage import quantise

Arrays = Mapping[str, NDArray[np.floating]]

#: A storage type for all tensors, or a function from a tensor's name to one.
Types = str | Callable[[str], str]

_SAFETENSORS = {"f32": "F32", "bf16": "BF16", "f16": "F16", "e4m3": "F8_E4M3", "e8m0": "F8_E8M0", "i64": "I64", "i8": "I8",
                "u8": "U8"}  # fmt: skip
_GGML = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12,
    "q5_k": 13, "q6_k": 14, "iq4_nl": 20, "iq4_xs": 23, "bf16": 30, "mxfp4": 39, "nvfp4": 40,
}  # fmt: skip


def seeded_weights(shapes: Mapping[str, Sequence[int]], seed: int, *, gain: float = 1.5) -> dict[str, NDArray[np.float32]]:
    """Weights that are a function of seed and name alone: matrices with a standard deviation of about gain/sqrt(in),
    biases within 0.5, other vectors around 1.

    Every value has at most eight significant bits, so that f32, bf16 and f16 files hold the very same model.
    """
    found = {}
    for name, shape in shapes.items():
        count = math.prod(shape)
        codes = np.frombuffer(hashlib.shake_256(f"{seed}:{name}".encode()).digest(count), np.int8).astype(np.float32)
        if name.endswith("bias"):
            codes /= 256
        elif len(shape) == 1:
            codes = 1 + np.trunc(codes / 4) / np.float32(128)
        else:
            codes *= 2.0 ** round(math.log2(gain / (74 * math.sqrt(shape[-1]))))  # 74: the deviation of an int8
        found[name] = codes.reshape(tuple(shape))
    return found


def write_checkpoint(
    folder: Path, config: Mapping[str, Any], arrays: Arrays, *, dtype: Types = "f32", shards: int = 1
) -> Path:
    """A folder with config.json and `shards` safetensors files (with an index if there are several)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if shards == 1:
        write_safetensors(folder / "model.safetensors", arrays, dtype=dtype)
        return folder
    names = list(arrays)
    mapped: dict[str, str] = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        write_safetensors(folder / file, {name: arrays[name] for name in names[i::shards]}, dtype=dtype)
        mapped.update(dict.fromkeys(names[i::shards], file))
    index = json.dumps({"metadata": {}, "weight_map": mapped})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    return folder


def write_safetensors(file: Path, arrays: Arrays, *, dtype: Types = "f32") -> Path:
    """One safetensors file; `dtype` is one of plain numbers: f32, bf16, f16, e4m3, e8m0, i64, i8 or u8."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    chunks: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        kind = dtype if isinstance(dtype, str) else dtype(name)
        data = quantise(kind, array)
        header[name] = {"dtype": _SAFETENSORS[kind], "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        chunks.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))
    return file


def write_gguf(
    file: Path, metadata: Mapping[str, Any], arrays: Arrays, *, dtype: Types = "f32", alignment: int = 32, version: int = 3
) -> Path:
    """One GGUF file. Metadata values are bool, int, float, str or lists of one of them; vectors are always stored as f32."""
    pairs = {"general.alignment": alignment, **metadata} if alignment != 32 else dict(metadata)
    infos: list[bytes] = []
    data = bytearray()
    for name, array in arrays.items():
        kind = "f32" if array.ndim == 1 else dtype if isinstance(dtype, str) else dtype(name)
        data += b"\0" * (-len(data) % alignment)
        dims = struct.pack(f"<{array.ndim}Q", *reversed(array.shape))
        infos.append(_text(name) + struct.pack("<I", array.ndim) + dims + struct.pack("<IQ", _GGML[kind], len(data)))
        data += quantise(kind, array)
    header = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(pairs))
    header += b"".join(_text(key) + struct.pack("<I", _kind(value)) + _value(value) for key, value in pairs.items())
    header += b"".join(infos)
    file.write_bytes(header + b"\0" * (-len(header) % alignment) + data)
    return file


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _kind(value: Any) -> int:
    """GGUF's number for the type that holds a value: bool 7, u32 4, i32 5, u64 10, f32 6, string 8, array 9."""
    if isinstance(value, bool):
        return 7
    if isinstance(value, int):
        return 5 if value < 0 else 4 if value < 1 << 32 else 10
    return 6 if isinstance(value, float) else 8 if isinstance(value, str) else 9


def _value(value: Any) -> bytes:
    kind = _kind(value)
    if kind == 8:
        return _text(value)
    if kind != 9:
        return struct.pack({7: "<?", 5: "<i", 4: "<I", 10: "<Q", 6: "<f"}[kind], value)
    inner = max((_kind(item) for item in value), default=8)
    return struct.pack("<IQ", inner, len(value)) + b"".join(map(_value, value))
