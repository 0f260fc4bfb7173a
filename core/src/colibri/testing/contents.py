"""What a slot holds as plain bytes: images and blanks for runtimes in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class BytesImage:
    """A compute.runtime.Image of `data`, none of which may be rounded."""

    def __init__(self, length: int, snapshots: Sequence[int], data: bytes) -> None:
        self.length, self.snapshots = length, list(snapshots)
        self.size = self.exact = len(data) // 4
        self._data = data

    def read(self, begin: int, count: int) -> bytes:
        if not 0 <= begin <= begin + count <= self.size:
            raise ValueError(f"numbers {begin} and {count} more, there are {self.size}")
        return self._data[4 * begin : 4 * (begin + count)]


class BytesBlank:
    """A compute.runtime.Blank of `size` numbers; `use` gets their bytes when it is adopted."""

    def __init__(self, size: int, use: Callable[[bytes], None]) -> None:
        self.size = self.exact = size
        self._data = bytearray(4 * size)
        self._use = use

    def write(self, begin: int, data: bytes) -> None:
        if begin < 0 or 4 * begin + len(data) > len(self._data):
            raise ValueError(f"number {begin} and {len(data)} bytes, there are {self.size} numbers")
        self._data[4 * begin : 4 * begin + len(data)] = data

    def adopt(self) -> None:
        self._use(bytes(self._data))
