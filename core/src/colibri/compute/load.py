"""From an opened checkpoint to a runtime that can be stepped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import CheckpointError, ColibriError, PluginError, SettingError
from ..family import Family
from .budget import PROCESS, Sizes, no_room, room_for_model, split
from .checkpoint import Checkpoint, Tensor, parts_of, stretches
from .experts import DEFAULT_STREAMING, Streaming
from .graph import Graph
from .memory import total
from .plan import Plan
from .runtime import Runtime

if TYPE_CHECKING:
    from .native import NativeRuntime

GIB = 1 << 30

#: Context in tokens where the user names none: a model's own limit is often more than its memory can hold.
DEFAULT_CONTEXT = 4096

#: Rows of a step where nobody says otherwise.
DEFAULT_ROWS = 256


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
    routed = {index for bank in plan.banks for kind in (bank.gate, bank.up, bank.down) for index in kind}
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for index, weight in enumerate(plan.weights):
        parts[index in routed].extend(parts_of(tensors[weight.name]))
    weights, experts = (sum(count for _, _, count in stretches(each)) for each in parts)
    kv = sum(state.bytes(context, max_rows) for state in plan.states) * slots
    return Sizes(weights, experts, kv)


def load_runtime(
    family: Family,
    checkpoint: Checkpoint,
    *,
    context: int = 0,
    slots: int = 1,
    max_rows: int = DEFAULT_ROWS,
    threads: int = 0,
    isa: str = "",
    drafts: bool = False,
    ram: int = 0,
    streaming: Streaming = DEFAULT_STREAMING,
    progress: Callable[[str, float], None] | None = None,
) -> Runtime:
    """Load a model natively: at most `max_rows` rows a step, `slots` slots of `context` tokens (0: see context_for).

    `threads` 0 takes all physical cores, `isa` "" the best code path; `progress` hears of each stage and its fraction.
    `drafts`: the checkpoint's draft head too, if it has one: it becomes the runtime's `draft`, whose hidden rows are kept.
    `ram`: bytes that the process may take (0: most of what is free); experts that it doesn't hold are read as `streaming`
    says. Raises CheckpointError, PluginError or SettingError.
    """
    from .native import NativeRuntime  # its library is needed only where a model is really loaded

    plan, tensors = declare(family, checkpoint)
    head = declare_draft(family, checkpoint, plan) if drafts else None
    length = context_for(plan, context)
    models = [(plan, tensors), *([head] if head else [])]
    sizes = [plan_bytes(*each, context=length, slots=slots, max_rows=max_rows) for each in models]
    size = sum(sizes[1:], sizes[0])
    # The cache is only taken as it fills: what can never fit must be said now, not in the middle of an answer.
    if size.kv > total():
        raise _no_room(length, slots, size, f"this machine has {total() / GIB:.1f} GiB")
    room = room_for_model(ram)
    streamed = streaming if size.experts and size.total + PROCESS > room else None
    load = partial(NativeRuntime.load, slots=slots, context=length, max_rows=max_rows, threads=threads, isa=isa)
    try:
        draft = load(*head, streaming=streamed, progress=progress) if head is not None else None
        runtime = load(plan, tensors, draft=draft, streaming=streamed, progress=progress)
    except ValueError as error:
        raise CheckpointError(str(error), file=checkpoint.path) from None
    except MemoryError:
        raise _no_room(length, slots, size, "the system does not give that") from None
    if streamed is not None:
        loaded = [each for each in (runtime, draft) if each is not None]
        fixed = size.weights + size.kv + PROCESS + sum(each.workspace for each in loaded)
        _share_out(room - fixed, loaded, sizes, lambda least: no_room(room, fixed, least, ram))
    return runtime


def _share_out(
    room: int, loaded: Sequence[NativeRuntime], sizes: Sequence[Sizes], error: Callable[[int], SettingError]
) -> None:
    """Give streamed experts their memory. Raises `error` of the bytes that one token takes if there is not enough."""
    caches = [each.experts for each in loaded]
    least = [cache.least if cache else 0 for cache in caches]
    try:
        shares = split(room, least, [size.experts for size in sizes])
    except ValueError:
        raise error(sum(least)) from None
    for cache, share in zip(caches, shares, strict=True):
        if cache is not None:
            cache.limit(share)


def _no_room(context: int, slots: int, size: Sizes, reason: str) -> SettingError:
    return SettingError(
        f"--ctx {context} with --kv-slots {slots} needs {size.kv / GIB:.1f} GiB for the cache, {reason}; lower one of them"
    )
