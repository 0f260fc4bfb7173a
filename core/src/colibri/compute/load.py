"""From an opened checkpoint to a runtime that can be stepped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psutil
from msgspec import Struct

from ..errors import CheckpointError, ColibriError, PluginError, SettingError
from ..family import Family
from .checkpoint import Checkpoint, Tensor, parts_of
from .graph import Graph
from .plan import Plan
from .runtime import Runtime

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


def declare(family: Family, checkpoint: Checkpoint) -> tuple[Plan, Mapping[str, Tensor]]:
    """The family's plan for this checkpoint, and where each of the plan's weights lies.

    Raises CheckpointError for what is wrong with the files and PluginError for what is wrong with the family.
    """
    graph = Graph(checkpoint)
    try:
        family.graph(checkpoint, graph)
        return graph.plan(), graph.tensors
    except ColibriError:
        raise
    except Exception as error:
        raise PluginError(f"family {family.name}: its graph failed: {type(error).__name__}: {error}") from error


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
    progress: Callable[[str, float], None] | None = None,
) -> Runtime:
    """Load a model natively: at most `max_rows` rows a step, `slots` slots of `context` tokens (0: see context_for).

    `threads` 0 takes all physical cores, `isa` "" the best code path; `progress` hears of each stage and its fraction.
    Raises CheckpointError, PluginError or SettingError.
    """
    from .native import NativeRuntime  # its library is needed only where a model is really loaded

    plan, tensors = declare(family, checkpoint)
    length = context_for(plan, context)
    size = plan_bytes(plan, tensors, context=length, slots=slots, max_rows=max_rows)
    memory = psutil.virtual_memory().total
    # The cache is only taken as it fills: what can never fit must be said now, not in the middle of an answer.
    if size.kv > memory:
        raise _no_room(length, slots, size, f"this machine has {memory / GIB:.1f} GiB")
    try:
        return NativeRuntime.load(
            plan, tensors, slots=slots, context=length, max_rows=max_rows, threads=threads, isa=isa, progress=progress
        )
    except ValueError as error:
        raise CheckpointError(str(error), file=checkpoint.path) from None
    except MemoryError:
        raise _no_room(length, slots, size, "the system does not give that") from None


def _no_room(context: int, slots: int, size: Sizes, reason: str) -> SettingError:
    return SettingError(
        f"--ctx {context} with --kv-slots {slots} needs {size.kv / GIB:.1f} GiB for the cache, {reason}; lower one of them"
    )
