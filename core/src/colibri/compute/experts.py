"""Experts that are read from disk as they are needed, within a budget of memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from .. import _native
from ..errors import SettingError

#: Reads under way at once, where nobody says otherwise: disks with many channels need about as many to be busy.
READERS = 8


class Streaming(Struct, frozen=True):
    """How experts are read: so many at once, and from a copy of the model on another disk as well."""

    readers: int = READERS
    mirror: Path | None = None

    def copies(self, files: Sequence[Path]) -> list[str]:
        """For each file that of the mirror, "" where it has none. Raises SettingError if it has none at all."""
        if self.mirror is None:
            return []
        if self.mirror.is_file():
            found = [self.mirror if file.name == self.mirror.name else Path() for file in files]
        else:
            found = [self.mirror / file.name for file in files]
        copies = [str(copy) if copy.is_file() else "" for copy in found]
        if not any(copies):
            raise SettingError(f"--mirror {self.mirror}: holds none of the model's files, such as {files[0].name}")
        return copies


DEFAULT_STREAMING = Streaming()


class BankFacts(Struct, frozen=True):
    """One layer's cache: bytes of an expert, how many there are, how many of them have room, how many are in
    memory; since the start, how many were there
    when they were needed and how many were not, and seconds that computing waited for them."""

    expert_bytes: int
    experts: int
    room: int
    held: int
    hits: int
    misses: int
    waited: float


class Facts(Struct, frozen=True):
    """All layers; bytes read since the start, and seconds in which something was read."""

    banks: tuple[BankFacts, ...]
    bytes_read: int
    reading: float

    @property
    def bytes(self) -> int:
        """Memory for experts."""
        return sum(bank.expert_bytes * bank.room for bank in self.banks)

    @property
    def hit_rate(self) -> float:
        """The share of the experts needed that were there; 1 if none was needed yet."""
        hits, misses = sum(bank.hits for bank in self.banks), sum(bank.misses for bank in self.banks)
        return hits / (hits + misses) if hits + misses else 1.0


class Experts:
    """The streamed experts of a runtime, to be asked and told things between its steps."""

    def __init__(self, runtime: _native.Runtime, identity: str) -> None:
        self._runtime = runtime
        self.identity = identity

    @property
    def least(self) -> int:
        """Bytes that one token's experts take, in all layers."""
        return self._runtime.least_experts

    def limit(self, budget: int) -> None:
        """Keep experts in `budget` bytes from now on, or in those of the first call if they are fewer. Raises ValueError if
        that is less than `least`. Without a call no step can be made."""
        self._runtime.limit_experts(budget)

    def facts(self) -> Facts:
        """How the caches do."""
        banks = tuple(BankFacts(*bank[:6], bank[6] / 1e9) for bank in self._runtime.banks() if bank[0])
        read, reading = self._runtime.reads()
        return Facts(banks, read, reading / 1e9)

    @property
    def streamed(self) -> list[int]:
        """Indices of the plan's banks that are streamed: some files lie so that theirs can't be."""
        return [index for index, bank in enumerate(self._runtime.banks()) if bank[0]]

    def held(self, bank: int) -> list[int]:
        """The experts of a bank that are in memory."""
        return self._runtime.held(bank)

    def uses(self, bank: int) -> list[int]:
        """How often rows chose each expert of a bank since the start."""
        return self._runtime.uses(bank)

    def preload(self, bank: int, experts: Sequence[int]) -> None:
        """Read these while nothing is needed more, as far as there is room that nobody uses."""
        self._runtime.preload(bank, list(experts))

    def pin(self, bank: int, experts: Sequence[int]) -> None:
        """Keep these as long as there are others to give up."""
        self._runtime.pin(bank, list(experts))
