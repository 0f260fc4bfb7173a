"""Which experts a model's users need: counts by layer and expert, kept in a file from one start to the next."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

log = logging.getLogger(__name__)

#: The file's name, in the folder where conversations are kept.
FILE = ".coli_usage"

#: Choices of an expert per layer after which older ones count half as much: habits change.
HALF_LIFE = 50_000

#: Choices per layer below which the counts say nothing yet.
ENOUGH = 1_000

#: Models that one file remembers, of those that lie in the same folder.
_MODELS = 8

#: Longest file that is read, in bytes.
_LONGEST = 64 << 20

#: How often each expert was chosen, by layer.
Counts = tuple[tuple[float, ...], ...]


class _File(Struct, frozen=True):
    """By the identity of a model, the one used last at the end."""

    models: dict[str, Counts]


def read(folder: Path, identity: str) -> Counts:
    """What is known of a model; nothing if there is no such file, or none that can be read: that is told and no more, for it
    is only about speed."""
    return _read(folder / FILE).models.get(identity, ())


def _read(path: Path) -> _File:
    try:
        if path.stat().st_size > _LONGEST:
            raise ValueError("it is too large")
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File({})
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s is ignored: %s", path, error)
        return _File({})


def write(folder: Path, identity: str, counts: Counts) -> None:
    """Keep what is known of a model, beside what is known of others. A file that can't be written is told about."""
    path = folder / FILE
    models = {name: each for name, each in _read(path).models.items() if name != identity}
    kept = dict(list(models.items())[-(_MODELS - 1) :])
    partial = path.with_name(f"{FILE}.{os.getpid()}.partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(msgspec.json.encode(replace(_File(kept), models={**kept, identity: counts})))
        partial.replace(path)
    except OSError as error:
        log.warning("%s can't be written: %s", path, error.strerror or error)
        with contextlib.suppress(OSError):
            partial.unlink()


def added(before: Counts, uses: Sequence[Sequence[int]]) -> Counts:
    """`before`, grown old by as many choices as are new, and the new ones."""
    grown = []
    for layer, new in enumerate(uses):
        old = before[layer] if layer < len(before) and len(before[layer]) == len(new) else (0.0,) * len(new)
        factor = 0.5 ** (sum(new) / HALF_LIFE)
        grown.append(tuple(round(was * factor + now, 3) for was, now in zip(old, new, strict=True)))
    return tuple(grown)


def hottest(counts: Sequence[float]) -> list[int]:
    """Experts of a layer, those that are needed most often first."""
    return sorted(range(len(counts)), key=lambda expert: -counts[expert])
