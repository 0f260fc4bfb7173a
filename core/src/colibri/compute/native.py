"""The native runtime behind the Runtime protocol: hands a plan and its tensors to colibri._native and steps the result."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread

from .. import _native
from ..errors import CheckpointError, EngineError, SettingError
from ..family import Sampling
from .budget import GB
from .checkpoint import Tensor, parts_of, stretches
from .experts import Experts, Streaming
from .identity import identity
from .memory import available
from .plan import Codes, Node, Plan
from .runtime import Blank, Image, Phases, Row, Runtime

#: Bytes brought into memory at a time.
_READ = 64 << 20

#: The native runtime's answer for a row none of whose logits can be picked.
_NOTHING = -2


class NativeRuntime:
    """A plan compiled by colibri._native with its slots. Implements compute.runtime.Runtime."""

    def __init__(
        self,
        runtime: _native.Runtime,
        *,
        identity: str,
        vocab: int,
        codes: Codes | None,
        given: int,
        gives: int,
        draft: Runtime | None,
        slots: int,
        context: int,
        cache: int,
        sequential: bool,
        experts: Experts | None,
    ) -> None:
        """`cache` is what full slots take, in bytes."""
        self.experts = experts
        self.identity, self.given, self.gives, self.draft = identity, given, gives, draft
        self.vocab, self.codes, self.slots, self.context, self.sequential = vocab, codes, slots, context, sequential
        self._cache = cache
        self.max_rows = runtime.max_rows
        self._runtime = runtime
        self._samplers: dict[Sampling, _native.Sampler] = {}

    @classmethod
    def load(
        cls,
        plan: Plan,
        tensors: Mapping[str, Tensor],
        *,
        slots: int = 1,
        context: int = 0,
        max_rows: int = 256,
        threads: int = 0,
        isa: str = "",
        hidden: bool = False,
        draft: Runtime | None = None,
        streaming: Streaming | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> NativeRuntime:
        """Map the tensors, check the plan against them and compile it.

        `tensors` holds a tensor for each of the plan's weights, by the weight's name. `context` 0 takes the plan's own
        limit, `threads` 0 all physical cores, `isa` "" the best code path. `hidden`: the plan's hidden rows can be read,
        as they can for a `draft` head. `streaming`: experts are read as they are needed, and `experts.limit` must be called
        before the first step. Raises CheckpointError naming file and tensor,
        SettingError naming the flag, ValueError for a plan that contradicts itself, MemoryError where slots don't fit.
        """
        if isa and isa not in _native.isas():
            raise SettingError(f"--isa {isa}: this CPU has {', '.join(_native.isas())}")
        if not 0 <= threads <= 1024:
            raise SettingError(f"--threads {threads}: give 1 to 1024, or 0 for all physical cores")
        context = context or plan.context
        builder = _native.Builder(plan.vocab)
        files = _map(builder, [tensors[weight.name] for weight in plan.weights])
        if progress is not None:
            progress("mapping weights", 0.0)
        for weight in plan.weights:
            add_weight(builder, weight.name, weight.shape, tensors[weight.name], files)
        for width in plan.widths:
            builder.value(width)
        for bank in plan.banks:
            builder.bank(bank.width, bank.inner, bank.gate, bank.up, bank.down)
        for state in plan.states:
            builder.state(state.kind == "recurrent", state.planes, state.window, state.every)
        for node in plan.nodes:
            _add_node(builder, node)
        kept = plan.hidden if hidden or draft is not None else -1
        copies = streaming.copies(list(files)) if streaming is not None else []
        readers = streaming.readers if streaming is not None else 1
        runtime = builder.build(
            plan.logits, max_rows, slots, context, threads, isa, kept, streaming is not None, readers, copies
        )
        if progress is not None:
            _read_ahead(runtime, plan, tensors, files, streamed=streaming is not None, progress=progress)
        cache = sum(state.bytes(context, max_rows) for state in plan.states) * slots
        name = identity(plan, tensors)
        return cls(
            runtime,
            identity=name,
            vocab=plan.vocab,
            codes=plan.codes,
            given=plan.given,
            gives=plan.widths[kept] if kept >= 0 else 0,
            draft=draft,
            slots=slots,
            context=context,
            cache=cache,
            sequential=plan.sequential,
            experts=Experts(runtime, name) if streaming is not None else None,
        )

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Run the rows and return a token for each row with `sampling`, in order. Raises ValueError for rows that break
        the contract, with nothing changed, and EngineError if the model gave a row no logit that can be picked."""
        wanted = [i for i, row in enumerate(rows) if row.sampling is not None or row.logits]
        samplers = [self._sampler(rows[i].sampling) for i in wanted]
        try:
            picked = self._runtime.step(
                [row.token for row in rows],
                [row.slot for row in rows],
                [row.position for row in rows],
                wanted,
                samplers,
                [rows[i].draw for i in wanted],
                {i: row.codes for i, row in enumerate(rows) if row.codes},
                b"".join([row.given for row in rows]),
            )
        except RuntimeError as error:
            raise EngineError(str(error)) from None
        for i, token in zip(wanted, picked, strict=True):
            if token == _NOTHING:
                place = f"slot {rows[i].slot}, position {rows[i].position}"
                raise EngineError(f"the model computed no usable logits (all NaN or -inf) at {place}")
        return [token for token, sampler in zip(picked, samplers, strict=True) if sampler is not None]

    def logits(self, index: int) -> memoryview:
        """float32 logits [vocab] of the index-th row of the last step that had `sampling` or `logits`."""
        return memoryview(self._runtime.logits(index)).cast("f")  # type: ignore[return-value]  # mypy: memoryview[int]

    def hidden(self, row: int) -> memoryview:
        """float32 numbers of the plan's `hidden` in a row of the last step. Raises ValueError where none are kept."""
        return memoryview(self._runtime.hidden(row)).cast("f")  # type: ignore[return-value]  # mypy: memoryview[int]

    def copy(self, source: int, target: int, length: int) -> int:
        """Make a slot what another one was at `length` positions, or before; returns the length."""
        return self._runtime.copy(source, target, length)

    def reach(self, slot: int, length: int) -> int:
        """The greatest length, no more than `length`, that a slot can be taken back to."""
        return self._runtime.reach(slot, length)

    def rewind(self, slot: int, length: int) -> int:
        """Take a slot back to `length` positions, or to the nearest length before; returns it."""
        return self._runtime.rewind(slot, length)

    def remember(self, slot: int) -> None:
        """Make sure that a slot can be taken back to its present length."""
        self._runtime.remember(slot)

    def hold(self, slot: int) -> None:
        """The same for one step that may have to be taken back, at no cost but that of a copy."""
        self._runtime.hold(slot)

    def image(self, slot: int, length: int) -> Image:
        """The slot as `rewind(slot, length)` would make it; any thread may ask, about a slot that is not in use."""
        return self._runtime.image(slot, length)

    def blank(self, slot: int, length: int, snapshots: Sequence[int]) -> Blank:
        """Empty a slot to be made what an image was. Raises ValueError if this model has no such images."""
        return self._runtime.blank(slot, length, snapshots)

    def phases(self) -> Phases:
        """Where the time went."""
        times = {name: value / 1e9 for name, value in self._runtime.times().items()}
        facts = self.experts.facts() if self.experts is not None else None
        return Phases(
            times["attention"],
            times["experts"],
            times["head"],
            times["other"],
            sum(bank.waited for bank in facts.banks) if facts else 0.0,
            facts.reading if facts else 0.0,
            self._runtime.times()["steps"],
        )

    def expert_map(self) -> list[bytes]:
        """Of each layer with experts a byte for each (see Runtime)."""
        return self._runtime.expert_map()

    @property
    def workspace(self) -> int:
        """Bytes that steps take at most, besides slots and weights."""
        return self._runtime.workspace

    def describe(self) -> str:
        """Threads, code path and memory in one line."""
        threads = self._runtime.threads
        cache = self._cache / (1 << 20)
        facts = f"{threads} thread{'s' * (threads != 1)}, {self._runtime.isa}, {cache:.0f} MiB of cache when it is full"
        if self.experts is None:
            return facts
        room = self.experts.facts()
        part = sum(bank.room for bank in room.banks) / max(1, sum(bank.experts for bank in room.banks))
        return f"{facts}, {part:.0%} of the experts in {room.bytes / GB:.1f} GB, the others read as they are needed"

    def _sampler(self, sampling: Sampling | None) -> _native.Sampler | None:
        if sampling is None:
            return None
        if sampling.seed is None and sampling.temperature > 0:
            return _new_sampler(sampling, secrets.randbits(64))
        sampler = self._samplers.get(sampling)
        if sampler is None:
            if len(self._samplers) >= 256:
                self._samplers.clear()
            sampler = self._samplers[sampling] = _new_sampler(sampling, sampling.seed or 0)
        return sampler


def _new_sampler(sampling: Sampling, seed: int) -> _native.Sampler:
    return _native.Sampler(sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, seed % (1 << 64))


def _map(builder: _native.Builder, tensors: Sequence[Tensor]) -> dict[Path, int]:
    files: dict[Path, int] = {}
    for part in (part for tensor in tensors for part in parts_of(tensor)):
        if part.file not in files:
            try:
                files[part.file] = builder.file(os.fspath(part.file))
            except ValueError as error:
                raise CheckpointError(str(error)) from None
    return files


def add_weight(
    builder: _native.Builder, name: str, shape: tuple[int, ...], tensor: Tensor, files: Mapping[Path, int] | None = None
) -> int:
    """Tell a builder where a weight lies; returns its index. `files` are those it knows, by path; without, it is told of
    those that are needed. Raises CheckpointError for a tensor that can't be it."""
    if tensor.shape != shape:
        raise tensor.error(f"has shape {list(tensor.shape)}, {list(shape)} is needed")
    if files is None:
        files = _map(builder, [tensor])
    rows, cols = shape if len(shape) == 2 else (1, shape[0])
    try:
        index = builder.weight(name, tensor.dtype, rows, cols, files[tensor.file], tensor.offset, tensor.pitch)
        if (scales := tensor.scales) is not None:
            grid, zeros = (_place(part, files) for part in (scales.grid, scales.zeros))
            builder.scales(index, grid, zeros, scales.block, scales.first, scales.every, scales.factor, scales.zero)
    except (ValueError, TypeError) as error:  # TypeError: a number beyond 64 bits
        reason = " ".join(str(error).split()) if isinstance(error, ValueError) else "its shape or offset is out of range"
        raise tensor.error(reason) from None
    return index


def _place(grid: Tensor | None, files: Mapping[Path, int]) -> tuple[str, int, int, int, int] | None:
    """A grid of scales as the native runtime takes it: a vector has one column, a number is a grid of one."""
    if grid is None:
        return None
    rows, cols = (*grid.shape, 1, 1)[:2]
    return grid.dtype, files[grid.file], grid.offset, rows, cols


def _add_node(builder: _native.Builder, node: Node) -> None:
    ints: dict[str, int] = {}
    floats: dict[str, float] = {}
    words: dict[str, str] = {}
    int_lists: dict[str, list[int]] = {}
    float_lists: dict[str, list[float]] = {}
    for name, value in node.attrs.items():
        if isinstance(value, str):
            words[name] = value
        elif isinstance(value, int):
            ints[name] = int(value)
        elif isinstance(value, float):
            floats[name] = value
        elif all(isinstance(number, int) for number in value):
            int_lists[name] = [int(number) for number in value]
        else:
            float_lists[name] = [float(number) for number in value]
    lists = int_lists, float_lists
    builder.node(node.op, node.inputs, node.out, node.weights, node.bank, node.states, ints, floats, words, *lists)


def _read_ahead(
    runtime: _native.Runtime,
    plan: Plan,
    tensors: Mapping[str, Tensor],
    files: Mapping[Path, int],
    *,
    streamed: bool,
    progress: Callable[[str, float], None],
) -> None:
    """Bring weights into memory in the order of their files, so that the first request doesn't wait for the disk page by
    page: experts behind the scenes, as a conversation can begin without most of them. A model that memory can't hold is
    left to be read as it is used."""
    experts = {index for bank in plan.banks for kind in (bank.gate, bank.up, bank.down) for index in kind}
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for index, weight in enumerate(plan.weights):
        parts[index in experts].extend(parts_of(tensors[weight.name]))
    dense, rest = parts[0], [] if streamed else parts[1]
    first, then = list(stretches(dense, _READ)), list(stretches(rest, _READ))
    total = sum(count for _, _, count in first)
    if total + sum(count for _, _, count in then) > available():
        progress("weights exceed free memory: reading them as they are used", 1.0)
        return
    done = 0
    for file, offset, count in first:
        runtime.populate(files[file], offset, count)
        done += count
        progress("reading weights", done / total)

    def read_rest() -> None:
        for file, offset, count in then:
            runtime.populate(files[file], offset, count)

    if then:
        Thread(target=read_rest, name="experts", daemon=True).start()
