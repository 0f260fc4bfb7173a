"""From a checkpoint as published to a converted model (see container.py), file by file.

What becomes of a weight follows from the plan: experts of a bank go into records, matrices that only multiply rows or are
looked up by token are packed, and all else, routers and norms among them, stays as it is stored.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import _native
from ..errors import CheckpointError, ColibriError
from ..family import Family
from .checkpoint import BLOCKS, Checkpoint, Tensor, parts_of
from .container import ALIGNMENT, BANKS, KIND, MATRICES, METADATA, VERSION, Matrix, Parts, record_of
from .gguf import metadata_alone
from .load import Declared, declare, declare_draft
from .native import add_weight
from .plan import Bank, Plan

#: Words for how weights are stored -> the storage type; "keep" leaves them as they are.
TYPES = {"int4": "i4x16", "int8": "i8x16"}

#: Most bytes of float32 that are packed at once, and of copied tensors that are read at once.
_CHUNK = 64 << 20

#: Bytes of weights that a file of matrices has at most, unless one of them is larger.
_FILE = 4 << 30

#: What lies beside the weights and belongs to a model.
_BESIDE = ("*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt", "LICENSE*", "README*")
_OWN = ("model.safetensors.index.json", "conversion.json")

#: Tensors that no plan names are taken along up to this size: tables of numbers that configurations are read from.
_SMALL = 1 << 20


#: Storage types -> what safetensors calls them.
_WORDS = {"f32": "F32", "bf16": "BF16", "f16": "F16", "i32": "I32", "i64": "I64"}


class Choice(Struct, frozen=True):
    """How matrices and experts are stored: words of TYPES, or "keep"."""

    dense: str = "int8"
    experts: str = "int4"


class Written(Struct, frozen=True):
    """A finished file: its tensors, the checksum of its bytes, and by name how large the error of its packed matrices is,
    as a share of their size (root of the mean squares)."""

    file: str
    tensors: tuple[str, ...]
    crc: int
    lost: dict[str, float]


class Source(Struct, frozen=True):
    """What a conversion was begun from, so that it is not gone on with from anything else."""

    plan: str
    choice: Choice
    files: dict[str, int]


class Conversion(Struct, frozen=True):
    """What conversion.json says: the source, and the files that are finished."""

    source: Source
    written: tuple[Written, ...] = ()


#: Hears of progress: the bytes of weights that are dealt with, and of how many.
Progress = Callable[[int, int], None]


class _Item(Struct, frozen=True):
    """A tensor to be written: a copy of the source's bytes, a packed matrix, or a bank of them."""

    name: str
    nbytes: int
    entry: dict[str, Any]
    copy: Tensor | None = None
    weight: Tensor | None = None
    matrix: Matrix | None = None
    parts: Parts | None = None
    experts: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()

    @property
    def read(self) -> int:
        """Bytes of the source it takes."""
        sources = [self.copy, self.weight, *(tensor for expert in self.experts for tensor in expert)]
        return sum(part.nbytes for tensor in sources if tensor is not None for part in parts_of(tensor))


def convert(
    family: Family,
    checkpoint: Checkpoint,
    target: Path,
    choice: Choice,
    *,
    threads: int,
    keep_free: int,
    progress: Progress,
) -> Conversion:
    """Write the model to the folder `target`, going on with what an earlier, broken off conversion finished there.

    `keep_free` bytes of the disk are left alone. Raises ColibriError for a target that is not empty or of another model,
    and for a disk without room, before anything is written.
    """
    declared = declare(family, checkpoint)
    head = declare_draft(family, checkpoint, declared[0])
    files = list(_files(checkpoint, [declared, *([head] if head else [])], choice))
    conversion = _begun(target, Source(declared[0].hash(), choice, _identity(checkpoint)))
    done = {written.file for written in conversion.written}
    _check_room(target, sum(item.nbytes for name, items in files if name not in done for item in items), keep_free)
    total, read = sum(item.read for _, items in files for item in items), 0
    for name, items in files:
        if name not in done:
            written = _write(target / name, items, threads, lambda more, read=read: progress(read + more, total))  # type: ignore[misc]
            conversion = replace(conversion, written=(*conversion.written, written))
            _save(target / "conversion.json", msgspec.json.format(msgspec.json.encode(conversion)))
        read += sum(item.read for item in items)
        progress(read, total)
    weight_map = {tensor: written.file for written in conversion.written for tensor in written.tensors}
    _save(target / _OWN[0], json.dumps({"metadata": {}, "weight_map": weight_map}, indent=1).encode())
    if checkpoint.format == "gguf":
        _save(target / METADATA, metadata_alone(checkpoint.path))
        return conversion
    for pattern in _BESIDE:
        for file in sorted(checkpoint.path.glob(pattern)):
            if file.is_file() and file.name not in _OWN:
                shutil.copyfile(file, target / file.name)
    return conversion


def verify(target: Path, conversion: Conversion) -> None:
    """Read all written files again. Raises CheckpointError naming the one that is not as it was written."""
    for written in conversion.written:
        crc = 0
        with (target / written.file).open("rb") as stream:
            while data := stream.read(_CHUNK):
                crc = zlib.crc32(data, crc)
        if crc != written.crc:
            raise CheckpointError("is not as it was written: the disk or the memory is faulty", file=target / written.file)


# What becomes of each weight


def _files(checkpoint: Checkpoint, declared: Iterable[Declared], choice: Choice) -> Iterator[tuple[str, list[_Item]]]:
    """The files to be written, each with its tensors: one for each bank, and as many as needed for all else."""
    plans, places = list(declared), _places(checkpoint)
    banks = [item for plan, tensors in plans for bank in plan.banks if (item := _bank(plan, bank, tensors, choice))]
    packed = {item.name: item for plan, tensors in plans for item in _matrices(checkpoint, plan, tensors, choice)}
    taken = {name for item in banks for expert in item.experts for tensor in expert for name in _names(places, tensor)}
    taken |= {name for item in packed.values() if item.weight for name in _names(places, item.weight)}
    in_banks = {bank.name for bank in banks}
    kept: set[str] = set()
    for plan, tensors in plans:
        own = {
            index
            for bank in plan.banks
            if bank.name in in_banks
            for kind in (bank.gate, bank.up, bank.down)
            for index in kind
        }
        for index, weight in enumerate(plan.weights):
            if index not in own and tensors[weight.name].name not in packed:
                kept |= _names(places, tensors[weight.name])
    kept |= {name for name, tensor in checkpoint.tensors.items() if tensor.nbytes <= _SMALL and name not in taken}
    matrices = [*packed.values(), *(_copy(checkpoint.tensors[name]) for name in sorted(kept))]
    groups: list[list[_Item]] = [[]]
    for item in matrices:
        if groups[-1] and sum(other.nbytes for other in groups[-1]) + item.nbytes > _FILE:
            groups.append([])
        groups[-1].append(item)
    listed = [("weights", group) for group in groups if group] + [("experts", [item]) for item in banks]
    for number, (kind, items) in enumerate(listed, 1):
        yield f"{kind}-{number:05d}-of-{len(listed):05d}.safetensors", items


def _bank(plan: Plan, bank: Bank, tensors: Mapping[str, Tensor], choice: Choice) -> _Item | None:
    """A bank in records; None where it stays as it is."""
    dtype = TYPES.get(choice.experts)
    if dtype is None or bank.width % BLOCKS[dtype][0] or bank.inner % BLOCKS[dtype][0]:
        return None

    def weights(indices: tuple[int, ...]) -> list[Tensor]:
        return [tensors[plan.weights[index].name] for index in indices]

    gate, down = Matrix(dtype, (bank.inner, bank.width)), Matrix(dtype, (bank.width, bank.inner))
    parts, record = record_of(gate, gate, down)
    experts = tuple(zip(weights(bank.gate), weights(bank.up), weights(bank.down), strict=True))
    nbytes = record * len(experts)
    entry = {"dtype": "U8", "shape": [len(experts), record]}
    return _Item(bank.name, nbytes, entry, parts=parts, experts=experts)


def _matrices(checkpoint: Checkpoint, plan: Plan, tensors: Mapping[str, Tensor], choice: Choice) -> Iterator[_Item]:
    """The weights that can be packed: read only by products and by token, and stored under their own name."""
    dtype = TYPES.get(choice.dense)
    if dtype is None:
        return
    routed = {node.inputs[0] for node in plan.nodes if node.op == "route"}
    uses: dict[int, set[str]] = {}
    for node in plan.nodes:
        for place, index in enumerate(node.weights):
            plain = place == 0 and node.op in ("linear", "embed") and node.out not in routed
            uses.setdefault(index, set()).add("packed" if plain else node.op)
    for index, weight in enumerate(plan.weights):
        tensor = tensors[weight.name]
        fits = len(weight.shape) == 2 and weight.shape[0] >= 16 and weight.shape[1] % BLOCKS[dtype][0] == 0
        whole = tensor.name == weight.name or checkpoint.tensors.get(tensor.name) == tensor
        if uses.get(index) == {"packed"} and fits and whole and tensor.shape == weight.shape:
            matrix = Matrix(dtype, weight.shape)
            entry = {"dtype": "U8", "shape": [matrix.nbytes]}
            yield _Item(tensor.name, matrix.nbytes, entry, weight=tensor, matrix=matrix)


def _copy(tensor: Tensor) -> _Item:
    word = _WORDS.get(tensor.dtype, tensor.dtype)
    if word in BLOCKS:  # a type of GGUF's
        entry = {"dtype": "U8", "shape": [tensor.nbytes]}
        return _Item(tensor.name, tensor.nbytes, entry, copy=tensor, matrix=Matrix(tensor.dtype, tensor.shape))
    return _Item(tensor.name, tensor.nbytes, {"dtype": word, "shape": [*tensor.shape]}, copy=tensor)


#: Where the tensors of each file begin, in order, and their names.
_Places = Mapping[Path, tuple[list[int], list[str]]]


def _places(checkpoint: Checkpoint) -> _Places:
    found: dict[Path, tuple[list[int], list[str]]] = {}
    for tensor in sorted(checkpoint.tensors.values(), key=lambda one: one.offset):
        begins, names = found.setdefault(tensor.file, ([], []))
        begins.append(tensor.offset)
        names.append(tensor.name)
    return found


def _names(places: _Places, tensor: Tensor) -> set[str]:
    """The file's tensors that a weight is read from."""
    found = set()
    for part in parts_of(tensor):
        begins, names = places[part.file]
        at = max(bisect_right(begins, part.offset) - 1, 0)
        while at < len(begins) and begins[at] < part.offset + part.nbytes:
            found.add(names[at])
            at += 1
    return found


# The target


def _begun(target: Path, source: Source) -> Conversion:
    """The conversion that was begun in the target, or a new one."""
    state = target / "conversion.json"
    if state.is_file():
        try:
            conversion = msgspec.json.decode(state.read_bytes(), type=Conversion)
        except (msgspec.MsgspecError, OSError):
            raise ColibriError(f"{state}: can't be read; remove the folder, or give another one") from None
        if conversion.source != source:
            raise ColibriError(f"{target}: holds the conversion of another model, or to other types; give another folder")
        return conversion
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ColibriError(f"{target}: is not empty; give a new folder for the converted model")
    target.mkdir(parents=True, exist_ok=True)
    conversion = Conversion(source)
    _save(state, msgspec.json.encode(conversion))
    return conversion


def _identity(checkpoint: Checkpoint) -> dict[str, int]:
    """The names and sizes of a checkpoint's files."""
    return {file.name: file.stat().st_size for file in sorted({tensor.file for tensor in checkpoint.tensors.values()})}


def _check_room(target: Path, needed: int, keep_free: int) -> None:
    free = shutil.disk_usage(target).free
    if needed + keep_free > free:
        reason = f"{needed / 1e9:.1f} GB are needed and {keep_free / 1e9:.1f} GB stay free (--keep-free)"
        raise ColibriError(f"{target}: the disk has {free / 1e9:.1f} GB; {reason}")


def _save(file: Path, data: bytes) -> None:
    """Write a small file whole, or not at all."""
    partial = file.with_name(file.name + ".partial")
    with partial.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)


def _write(file: Path, items: list[_Item], threads: int, progress: Callable[[int], None]) -> Written:
    """One file, under another name until it is whole."""
    matrices = {item.name: msgspec.to_builtins(item.matrix) for item in items if item.matrix}
    banks = {item.name: msgspec.to_builtins(item.parts) for item in items if item.parts}
    metadata = {KIND: VERSION, MATRICES: json.dumps(matrices), BANKS: json.dumps(banks), "format": "pt"}
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for item in sorted(items, key=lambda one: one.parts is None):  # banks first: they begin at whole records
        header[item.name] = {**item.entry, "data_offsets": [at, at + item.nbytes]}
        at += item.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    partial = file.with_name(file.name + ".partial")
    lost: dict[str, float] = {}
    crc = read = 0
    with partial.open("wb") as stream:
        for data in (len(text).to_bytes(8, "little"), text):
            crc = zlib.crc32(data, crc)
            stream.write(data)
        for item in sorted(items, key=lambda one: one.parts is None):
            for data, taken in _data(item, threads, lost):
                crc = zlib.crc32(data, crc)
                stream.write(data)
                read += taken
                progress(read)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)
    return Written(file.name, tuple(item.name for item in items), crc, lost)


def _data(item: _Item, threads: int, lost: dict[str, float]) -> Iterator[tuple[bytes, int]]:
    """The bytes of a tensor, piece by piece, each with how many of the source it took."""
    if item.copy is not None:
        with item.copy.file.open("rb") as stream:
            stream.seek(item.copy.offset)
            left = item.copy.nbytes
            while left:
                data = stream.read(min(left, _CHUNK))
                if not data:
                    raise item.copy.error("was cut short while it was read")
                left -= len(data)
                yield data, len(data)
    elif item.weight is not None and item.matrix is not None:
        loss = _Loss()
        yield from _packed(item.weight, item.matrix, threads, loss)
        lost[item.name] = loss.share
    elif item.parts is not None:
        loss, record = _Loss(), item.nbytes // len(item.experts)
        for expert in item.experts:
            whole = bytearray(record)
            for tensor, matrix in zip(expert, (item.parts.gate, item.parts.up, item.parts.down), strict=True):
                at = matrix.offset
                for data, _ in _packed(tensor, matrix, threads, loss):
                    whole[at : at + len(data)] = data
                    at += len(data)
            yield bytes(whole), sum(part.nbytes for tensor in expert for part in parts_of(tensor))
        lost[item.name] = loss.share


class _Loss:
    def __init__(self) -> None:
        self.error = self.size = 0.0

    @property
    def share(self) -> float:
        return float((self.error / self.size) ** 0.5) if self.size else 0.0


def _packed(tensor: Tensor, matrix: Matrix, threads: int, loss: _Loss) -> Iterator[tuple[bytes, int]]:
    """A weight in an interleaved type, rows after rows."""
    rows, columns = tensor.shape
    builder = _native.Builder(1)
    index = add_weight(builder, tensor.name, matrix.shape, tensor)
    step = max(_CHUNK // (4 * columns) // 16 * 16, 16)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        data, error, size = builder.pack(index, matrix.dtype, first, count, threads)
        loss.error += error
        loss.size += size
        yield data, sum(part.nbytes for part in parts_of(tensor)) * count // rows
