"""From an opened checkpoint to a runtime that can be stepped."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import psutil
from msgspec import Struct
from msgspec.structs import replace

from ..errors import CheckpointError, ColibriError, PluginError, SettingError
from ..family import Family
from .checkpoint import Checkpoint, Tensor, parts_of
from .graph import Graph
from .plan import Plan
from .runtime import Runtime

log = logging.getLogger(__name__)

GIB = 1 << 30

#: Context in tokens where the user names none: a model's own limit is often more than its memory can hold.
DEFAULT_CONTEXT = 4096

#: Rows of a step where nobody says otherwise.
DEFAULT_ROWS = 256


class Sizes(Struct, frozen=True):
    """Bytes a model takes: `weights` without `experts`, and `kv` for all slots."""

    weights: int
    experts: int
    kv: int

    @property
    def total(self) -> int:
        return self.weights + self.experts + self.kv


#: A plan, and where each of its weights lies.
Declared = tuple[Plan, Mapping[str, Tensor]]


def declare(family: Family, checkpoint: Checkpoint) -> Declared:
    """The family's plan for this checkpoint, and where each of the plan's weights lies.

    Raises CheckpointError for what is wrong with the files and PluginError for what is wrong with the family.
    """
    graph = Graph(checkpoint)
    with _blamed(family, "graph"):
        family.graph(checkpoint, graph)
        return graph.plan(), graph.tensors


def declare_draft(family: Family, checkpoint: Checkpoint, plan: Plan) -> Declared | None:
    """The same for the draft head of the checkpoint whose own plan is `plan` (see DraftFamily), None where it has none.

    Raises PluginError besides if the head does not go on from that plan's hidden rows.
    """
    draft = getattr(family, "draft", None)
    graph = Graph(checkpoint)
    with _blamed(family, "draft head"):
        if draft is None or not draft(checkpoint, graph):
            return None
        head = graph.plan()
    width = plan.widths[plan.hidden] if plan.hidden >= 0 else 0
    if not head.given == width > 0 or head.vocab != plan.vocab:
        reason = f"takes {head.given} numbers a row for {head.vocab} tokens, its graph has {width} for {plan.vocab}"
        raise PluginError(f"family {family.name}: its draft head {reason}")
    return head, graph.tensors


@contextlib.contextmanager
def _blamed(family: Family, what: str) -> Iterator[None]:
    try:
        yield
    except ColibriError:
        raise
    except Exception as error:
        raise PluginError(f"family {family.name}: its {what} failed: {type(error).__name__}: {error}") from error


def context_for(plan: Plan, wanted: int) -> int:
    """The context in tokens for a wish (0: none). Raises SettingError if the model cannot reach it."""
    if wanted <= 0:
        return min(plan.context, DEFAULT_CONTEXT)
    if wanted > plan.context:
        raise SettingError(f"--ctx {wanted} is more than this model's limit of {plan.context} tokens")
    return wanted


def plan_bytes(
    plan: Plan, tensors: Mapping[str, Tensor], *, context: int, slots: int, max_rows: int = DEFAULT_ROWS
) -> Sizes:
    """What weights and states take, in bytes, for `slots` slots of `context` tokens and steps of `max_rows`."""
    streamed = {index for bank in plan.banks for kind in (bank.gate, bank.up, bank.down) for index in kind}
    sizes = [sum(part.nbytes for part in parts_of(tensors[weight.name])) for weight in plan.weights]
    experts = sum(sizes[index] for index in streamed)
    kv = sum(state.bytes(context, max_rows) for state in plan.states) * slots
    return Sizes(sum(sizes) - experts, experts, kv)


def load_runtime(
    family: Family,
    checkpoint: Checkpoint,
    *,
    context: int = 0,
    slots: int = 1,
    max_rows: int = DEFAULT_ROWS,
    threads: int = 0,
    isa: str = "",
    drafts: bool | None = False,
    progress: Callable[[str, float], None] | None = None,
) -> Runtime:
    """Load a model natively: at most `max_rows` rows a step, `slots` slots of `context` tokens (0: see context_for).

    `threads` 0 takes all physical cores, `isa` "" the best code path; `progress` hears of each stage and its fraction.
    `drafts`: the checkpoint's draft head too, if it has one: it becomes the runtime's `draft`, and hidden rows are kept for
    it. None: if it is whole, and memory has room for it beside the model; a warning says where it is left out.
    Raises CheckpointError, PluginError or SettingError.
    """
    from .native import NativeRuntime  # its library is needed only where a model is really loaded

    plan, tensors = declare(family, checkpoint)
    length = context_for(plan, context)
    bytes_of = partial(plan_bytes, context=length, slots=slots, max_rows=max_rows)
    size, memory = bytes_of(plan, tensors), psutil.virtual_memory().total
    load = partial(NativeRuntime.load, slots=slots, context=length, max_rows=max_rows, threads=threads, isa=isa)

    def check(size: Sizes) -> None:
        # The cache is only taken as it fills: what can never fit must be said now, not in the middle of an answer.
        if size.kv > memory:
            raise _no_room(length, slots, size, f"this machine has {memory / GIB:.1f} GiB")

    def load_head() -> Runtime | None:
        head = declare_draft(family, checkpoint, plan)
        if head is None:
            return None
        more = bytes_of(*head)
        check(replace(size, kv=size.kv + more.kv))
        shared = sum(tensor.nbytes for name, tensor in head[1].items() if name in tensors)
        if drafts is None and size.total + more.total - shared > memory:
            raise SettingError(f"the model takes {size.total / GIB:.1f} GiB of {memory / GIB:.1f} GiB without it")
        return load(*head, hidden=True, progress=progress)

    check(size)
    try:
        draft = None
        try:
            draft = load_head() if drafts is not False else None
        except (ColibriError, ValueError, MemoryError) as error:
            if drafts:
                raise
            log.warning("the draft head is left out: %s", error)
        return load(plan, tensors, draft=draft, progress=progress)
    except ValueError as error:
        raise CheckpointError(str(error), file=checkpoint.path) from None
    except MemoryError:
        raise _no_room(length, slots, size, "the system does not give that") from None


def _no_room(context: int, slots: int, size: Sizes, reason: str) -> SettingError:
    return SettingError(
        f"--ctx {context} with --kv-slots {slots} needs {size.kv / GIB:.1f} GiB for the cache, {reason}; lower one of them"
    )
