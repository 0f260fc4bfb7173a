"""The tensor runtime: one process-wide model, run a whole step per call without the GIL.

Bad files and bad plans raise ValueError with a one-line reason; nothing here trusts a size, an offset or an index.
Weights stay where the files are mapped; biases and norm weights are converted to float32 when the runtime is built.
"""

from collections.abc import Sequence

__version__: str

def isas() -> list[str]:
    """The code paths this CPU can run, best last: "scalar", "avx2", "avx512"."""

def build_info() -> str:
    """Compiler, build type and code paths, in one line."""

def dequantize(dtype: str, data: bytes, count: int) -> bytes:
    """`count` values of storage type `dtype` as float32 bytes. For tests and tools."""

def rounded(dtype: str, data: bytes) -> bytes:
    """float32 bytes as storage type `dtype`: f32, f16, or q8_0, whose last block is filled up with zeros. What is beyond f16
    becomes its largest number."""

class Image:
    """What a slot holds (see compute.runtime.Image)."""
    @property
    def length(self) -> int: ...
    @property
    def snapshots(self) -> list[int]: ...
    @property
    def exact(self) -> int: ...
    @property
    def size(self) -> int: ...
    def read(self, begin: int, count: int) -> bytes:
        """Bytes of `count` numbers; releases the GIL."""

class Blank:
    """A slot to be filled (see compute.runtime.Blank)."""
    @property
    def exact(self) -> int: ...
    @property
    def size(self) -> int: ...
    def write(self, begin: int, data: bytes) -> None: ...
    def adopt(self) -> None:
        """Make the slot what was written; once."""

class Sampler:
    """Picks a token from logits. temperature 0 takes the highest logit, the lowest id among equals."""
    def __init__(self, temperature: float, top_p: float, top_k: int, min_p: float, seed: int) -> None: ...
    def pick(self, logits: object, step: int) -> int:
        """A token of a float32 buffer of logits; `step` counts a request's tokens: (seed, step) fixes the choice.

        Cuts in this order: top_k, then temperature, top_p, and min_p relative to the highest. Raises ValueError if all
        logits are NaN or -inf.
        """

class Builder:
    """Takes a plan node by node, checks it, and compiles it. Indices are counted in the order of the calls."""
    def __init__(self, vocab: int) -> None: ...
    def file(self, path: str) -> int:
        """Map a file read-only."""
    def weight(self, name: str, dtype: str, rows: int, cols: int, file: int, offset: int, pitch: int = 0) -> int:
        """A tensor [rows, cols] (a vector has rows 1) at a byte offset of a mapped file. Bounds are checked. `pitch`: bytes
        from row to row, 0 where they lie one behind the other."""
    def scales(
        self,
        weight: int,
        scales: tuple[str, int, int, int, int] | None,
        zeros: tuple[str, int, int, int, int] | None,
        block: tuple[int, int],
        first: int,
        every: int,
        factor: float,
        zero: int,
    ) -> None:
        """Scales that lie apart from a weight's values: grids as dtype, file, offset, rows and columns (see
        compute.checkpoint.Scales)."""
    def pack(self, weight: int, dtype: str, first: int, count: int, threads: int) -> tuple[bytes, float, float]:
        """Rows of a weight stored in a type whose rows lie interleaved, the sum of the squares of what got lost, and that of
        the values."""
    def value(self, width: int) -> int: ...
    def bank(self, width: int, inner: int, gate: Sequence[int], up: Sequence[int], down: Sequence[int]) -> int: ...
    def state(self, recurrent: bool, planes: Sequence[int], window: int, every: int) -> int:
        """Declare a state; returns its index."""
    def node(
        self,
        op: str,
        inputs: Sequence[int],
        out: int,
        weights: Sequence[int],
        bank: int,
        states: Sequence[int],
        ints: dict[str, int],
        floats: dict[str, float],
        words: dict[str, str],
        int_lists: dict[str, list[int]],
        float_lists: dict[str, list[float]],
    ) -> None: ...
    def build(
        self,
        logits: int,
        max_rows: int,
        slots: int,
        context: int,
        threads: int,
        isa: str,
        hidden: int = -1,
        streamed: bool = False,
        readers: int = 8,
        mirrors: Sequence[str] = (),
    ) -> Runtime:
        """Compile. threads 0 takes all physical cores; isa "" takes the best. The builder is spent afterwards. `hidden`: a
        value that can be read for all rows of a step, -1 for none. `streamed`: experts are read as they are needed by
        `readers` threads, and from `mirrors`, for each file the path of a copy or "", if there are any.

        Raises MemoryError where the address space has no room for the slots.
        """

class Runtime:
    """A compiled model with its slots. Not for concurrent use; `step` releases the GIL."""
    def step(
        self,
        tokens: Sequence[int],
        slots: Sequence[int],
        positions: Sequence[int],
        wanted: Sequence[int],
        samplers: Sequence[Sampler | None],
        steps: Sequence[int],
        codes: dict[int, bytes],
        given: bytes = b"",
    ) -> list[int]:
        """Run one row per token and return one token per wanted row. `codes` are those of the rows that have some, two bytes
        each and the lower one first; their tokens are not embedded. `given` are the float32 numbers that all rows bring
        along, as many as the plan asks for, one row behind the other.

        `wanted` are row indices, rising; samplers[i] picks from wanted[i]'s logits as its `steps[i]`-th token (None: the
        result is -1; -2 where all logits are NaN or -inf). A slot's rows must stand in order at consecutive positions
        without a hole before them, from a length on that the slot can be cut to. At most max_rows rows.
        Raises ValueError with nothing changed, and RuntimeError if another thread is in a step or an expert can't be read.
        """
    def logits(self, index: int) -> bytes:
        """The float32 logits of wanted[index] of the last step."""
    def hidden(self, row: int) -> bytes:
        """The float32 numbers of `hidden` in a row of the last step. Raises ValueError if there was none to keep."""
    def copy(self, source: int, target: int, length: int) -> int:
        """Make a slot what another one was at `length` positions, or before; returns the length."""
    def reach(self, slot: int, length: int) -> int:
        """The greatest length, no more than `length`, that a slot can be taken back to or copied at."""
    def rewind(self, slot: int, length: int) -> int:
        """Take a slot back to `length` positions, or to the nearest length before that is possible; returns it."""
    def remember(self, slot: int) -> None:
        """Make sure that a slot can be taken back to its present length."""
    def hold(self, slot: int) -> None:
        """Make sure of that for one step that may have to be taken back, at no cost but that of a copy."""
    def image(self, slot: int, length: int) -> Image:
        """The slot as `rewind` would make it. Any thread may ask, about a slot without rows in a step."""
    def blank(self, slot: int, length: int, snapshots: Sequence[int]) -> Blank:
        """Empty a slot to be filled with what an image of that length and those snapshots holds."""
    def populate(self, file: int, offset: int, bytes: int) -> None:
        """Bring a part of a mapped file into memory. Releases the GIL; may be called at any time."""
    def limit_experts(self, budget: int) -> None:
        """Memory for streamed experts, in bytes; no more than that of the first call, which comes before the first step."""
    def preload(self, bank: int, experts: Sequence[int]) -> None:
        """Read experts while nothing more urgent is to be read, as long as there is room that is free."""
    def pin(self, bank: int, experts: Sequence[int]) -> None:
        """The experts of a bank that are kept as long as there are others to give up."""
    def banks(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """Of each bank: bytes of an expert in memory, experts, room, how many of them are held, hits, misses and nanoseconds
        that steps waited; all 0 if it is not streamed."""
    def reads(self) -> tuple[int, int]:
        """Bytes of experts read, and nanoseconds in which any were being read."""
    def times(self) -> dict[str, int]:
        """Nanoseconds that steps took since the start: "attention", "experts", "head", "other"; and how many "steps"."""
    def expert_map(self) -> list[bytes]:
        """Of each bank a byte for each expert: bit 7 if it was chosen since the last call, bit 6 if it is in memory, and
        below that the binary digits of how often it was chosen."""
    def uses(self, bank: int) -> list[int]:
        """How often rows chose each expert."""
    def held(self, bank: int) -> list[int]:
        """Experts in memory."""
    def resident_bytes(self) -> int:
        """Bytes of activations and states allocated, weights excluded."""
    @property
    def workspace(self) -> int:
        """Bytes of activations, once a step was as large as it can be."""
    @property
    def least_experts(self) -> int:
        """Bytes of streamed experts that one token takes."""
    @property
    def max_rows(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...
