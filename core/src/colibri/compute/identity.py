"""What a saved state belongs to: one computation on one set of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..errors import CheckpointError
from .checkpoint import Tensor, parts_of
from .plan import Plan


def identity(plan: Plan, tensors: Mapping[str, Tensor]) -> str:
    """A name (hex) for the plan with its weights; another model, a replaced or a requantised one has another.

    Weights are not read: a file counts as the same while its name, its size and the time of its last change are, and a
    weight while it lies in the same place with the same type. Raises CheckpointError for a file that is gone.
    """
    files: dict[Path, int] = {}
    found: list[tuple[str, int, int]] = []
    digest = hashlib.sha256(plan.hash().encode())
    for weight in plan.weights:
        for part in parts_of(tensors[weight.name]):
            if part.file not in files:
                files[part.file] = len(files)
                found.append(_state_of(part.file))
            scales = part.scales
            how = None if scales is None else (scales.block, scales.first, scales.every, scales.factor, scales.zero)
            place = (part.dtype, part.shape, files[part.file], part.offset, part.pitch, how)
            digest.update(msgspec.msgpack.encode(place))
    digest.update(msgspec.msgpack.encode(found))
    return digest.hexdigest()[:32]


def _state_of(file: Path) -> tuple[str, int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", file=file) from None
    return file.name, status.st_size, status.st_mtime_ns
