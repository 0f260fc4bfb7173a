"""How a model's memory is divided: what must be there, and what is left for experts."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct

from ..errors import SettingError
from .memory import available

log = logging.getLogger(__name__)

GB = 10**9

#: The part of the free memory that a model takes by itself.
SHARE = 0.88

#: Bytes that the process takes besides the model: the interpreter, libraries, conversations.
PROCESS = 128 << 20


class Sizes(Struct, frozen=True):
    """Bytes a model takes: `weights` without `experts`, and `kv` for all slots."""

    weights: int
    experts: int
    kv: int

    @property
    def total(self) -> int:
        return self.weights + self.experts + self.kv

    def __add__(self, other: Sizes) -> Sizes:
        return Sizes(self.weights + other.weights, self.experts + other.experts, self.kv + other.kv)


def in_words(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / GB:.2f} GB" if size >= GB // 10 else f"{size / 1e6:.1f} MB"


def room_for_model(ram: int) -> int:
    """Bytes that the process may take: `ram`, but no more than there are; of what is free, if it is 0."""
    free = available()
    if ram > free:
        log.warning("--ram %.1f is more than is free: taking %.1f GB", ram / GB, free / GB)
    return min(ram, free) if ram else int(SHARE * free)


def split(room: int, least: Sequence[int], experts: Sequence[int]) -> list[int]:
    """`room` bytes for some models' experts: each what one token takes, `least`, and of the rest the share of its `experts`.
    Raises ValueError if it doesn't hold what one token takes."""
    spare = room - sum(least)
    if spare < 0:
        raise ValueError(f"{room} bytes do not hold {sum(least)}")
    return [own + spare * size // sum(experts) for own, size in zip(least, experts, strict=True)]


def no_room(room: int, fixed: int, least: int, ram: int) -> SettingError:
    """Why a model can't run in `room` bytes, of which `fixed` are taken before the first expert."""
    need = fixed + least
    place = f"--ram {ram / GB:g}" if ram else f"the free memory, {in_words(room)},"
    advice = "raise it, or lower --ctx or --kv-slots" if ram else "close other programs, or lower --ctx or --kv-slots"
    return SettingError(
        f"{place} does not hold this model: it needs {in_words(need)}, {in_words(fixed)} for weights, caches and steps and "
        f"{in_words(least)} for the experts of one token; {advice}"
    )
