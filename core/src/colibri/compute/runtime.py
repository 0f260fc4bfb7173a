"""A loaded model: a plan, its weights, its slots. The native runtime and the interpreter of the test kit both are one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import astuple

from ..family import Sampling
from .plan import Codes

if TYPE_CHECKING:
    from .experts import Experts  # of the native library


class Row(Struct, frozen=True):
    """One token of a step. With `sampling`, the step picks a token from this row's logits as the request's
    `draw`-th one; with `logits` alone its logits can be read afterwards. `codes`, two bytes each and the lower one first,
    stand in place of the token, such as those of a moment of sound. `given` holds the float32 numbers that a plan's `given`
    asks for."""

    token: int
    slot: int
    position: int
    sampling: Sampling | None = None
    draw: int = 0
    logits: bool = False
    codes: bytes = b""
    given: bytes = b""


class Image(Protocol):
    """What makes a slot what it is at `length` positions, as a run of `size` float32 numbers. The first `exact` of them are
    for going on only as they are; the rest are rows, which can be kept in fewer bits. `snapshots`: the rising lengths that
    the slot can be taken back to, where it can't be cut anywhere."""

    @property
    def length(self) -> int: ...

    @property
    def snapshots(self) -> Sequence[int]: ...

    @property
    def exact(self) -> int: ...

    @property
    def size(self) -> int: ...

    def read(self, begin: int, count: int) -> bytes:
        """Bytes of `count` numbers from `begin` on. Any thread may read, until the slot is taken back to before `length`."""
        ...


class Blank(Protocol):
    """A slot to be filled with what an Image holds."""

    @property
    def exact(self) -> int: ...

    @property
    def size(self) -> int: ...

    def write(self, begin: int, data: bytes) -> None:
        """Put numbers from `begin` on in their places."""
        ...

    def adopt(self) -> None:
        """Make the slot what was written, with all its length. Nothing may have been done to the slot meanwhile."""
        ...


class Phases(Struct, frozen=True):
    """Seconds since the start that steps took, by what was done. `experts` has in it what was `waited` for them; `reading`
    is when any were being read, at the same time as all else."""

    attention: float = 0.0
    experts: float = 0.0
    head: float = 0.0
    other: float = 0.0
    waited: float = 0.0
    reading: float = 0.0
    steps: int = 0

    def since(self, before: Phases) -> Phases:
        """What came after `before`."""
        return Phases(*(now - was for now, was in zip(astuple(self), astuple(before), strict=True)))


class Runtime(Protocol):
    """What the engine steps. Rows of a slot stand in order at consecutive positions, the first of them at a length the slot
    has or was taken back to."""

    context: int
    slots: int
    vocab: int
    codes: Codes | None  # what rows can have in place of tokens
    given: int  # numbers that each row brings along
    gives: int  # numbers of a hidden row, 0 where none are kept
    identity: str  # of the computation and its weights (see compute.identity); "": its states can't be saved
    experts: Experts | None  # where they are streamed
    draft: Runtime | None  # the model's draft head, if it was loaded: its rows bring this runtime's hidden rows along
    max_rows: int
    sequential: bool  # slots can only be taken back to where they were remembered

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Run the rows (at most `max_rows`) and return a token for each row with `sampling`, in order."""
        ...

    def logits(self, index: int) -> memoryview:
        """float32 logits [vocab] of the index-th row of the last step that had `sampling` or `logits`."""
        ...

    def hidden(self, row: int) -> memoryview:
        """float32 numbers of the plan's `hidden` in a row of the last step, whether its logits were wanted or not. Raises
        ValueError where none are kept."""
        ...

    def copy(self, source: int, target: int, length: int) -> int:
        """Make a slot what another one was at `length` positions, or at the nearest length before; returns the length."""
        ...

    def reach(self, slot: int, length: int) -> int:
        """The greatest length, no more than `length`, that a slot can be taken back to or copied at."""
        ...

    def rewind(self, slot: int, length: int) -> int:
        """Take a slot back to `length` positions, or to the nearest length before that is possible; returns it."""
        ...

    def remember(self, slot: int) -> None:
        """Make sure that a slot can be taken back to its present length."""
        ...

    def hold(self, slot: int) -> None:
        """The same for one step that may have to be taken back: it lasts until it is used or the slot is held again, and as
        long as windows reach, and costs a copy of what can't be cut."""
        ...

    def image(self, slot: int, length: int) -> Image:
        """The slot as `rewind(slot, length)` would make it, which it does not. Any thread may ask, about a slot that is not
        in use."""
        ...

    def blank(self, slot: int, length: int, snapshots: Sequence[int]) -> Blank:
        """Empty a slot to be made what an image of that length and those snapshots was. Raises ValueError if this model has
        no such images, MemoryError if there is no room."""
        ...

    def phases(self) -> Phases:
        """Where the time went."""
        ...

    def expert_map(self) -> list[bytes]:
        """Of each layer with experts a byte for each: bit 7 if rows chose it since the last call, bit 6 if it is in memory,
        and below that the binary digits of how often it was chosen."""
        ...

    def describe(self) -> str:
        """Threads, code path and memory in one line."""
        ...
