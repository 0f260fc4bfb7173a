"""From an opened checkpoint to a runtime that can be stepped."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import CheckpointError, ColibriError, PluginError, SettingError
from ..family import Family
from .budget import PROCESS, Sizes, in_words, no_room, room_for_model, split
from .checkpoint import Checkpoint, Tensor, parts_of, stretches
from .experts import DEFAULT_STREAMING, Streaming
from .graph import Graph
from .memory import total
from .plan import Plan
from .runtime import Runtime

if TYPE_CHECKING:
    from .native import NativeRuntime

log = logging.getLogger(__name__)

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
    drafts: bool | None = False,
    ram: int = 0,
    streaming: Streaming = DEFAULT_STREAMING,
    progress: Callable[[str, float], None] | None = None,
) -> Runtime:
    """Load a model natively: at most `max_rows` rows a step, `slots` slots of `context` tokens (0: see context_for).

    `threads` 0 takes all physical cores, `isa` "" the best code path; `progress` hears of each stage and its fraction.
    `drafts`: the checkpoint's draft head too, if it has one: it becomes the runtime's `draft`, and hidden rows are kept for
    it. None: if it is whole, and memory has room for it beside the model; a warning says where it is left out. `ram`: bytes
    that the process may take (0: most of what is free); experts that it doesn't hold are read as `streaming` says.
    Raises CheckpointError, PluginError or SettingError.
    """
    from .native import NativeRuntime  # its library is needed only where a model is really loaded

    plan, tensors = declare(family, checkpoint)
    length = context_for(plan, context)
    room = room_for_model(ram)
    bytes_of = partial(plan_bytes, context=length, slots=slots, max_rows=max_rows)
    sizes = [bytes_of(plan, tensors)]

    def check(kv: int) -> None:
        # The cache is only taken as it fills: what can never fit must be said now, not in the middle of an answer.
        if kv > total():
            raise _no_room(length, slots, kv, f"this machine has {total() / GIB:.1f} GiB")

    check(sizes[0].kv)
    head = _head(family, checkpoint, (plan, tensors), room - PROCESS - sizes[0].total, bytes_of, drafts)
    if head is not None:
        sizes.append(_beside(bytes_of(*head), head[1], tensors))
    size = sum(sizes[1:], sizes[0])
    check(size.kv)
    streamed = streaming if size.experts and size.total + PROCESS > room else None
    load = partial(
        NativeRuntime.load,
        slots=slots,
        context=length,
        max_rows=max_rows,
        threads=threads,
        isa=isa,
        streaming=streamed,
        progress=progress,
    )
    try:
        draft = _load_head(load, head, drafts)
        runtime = load(plan, tensors, draft=draft)
    except ValueError as error:
        raise CheckpointError(str(error), file=checkpoint.path) from None
    except MemoryError:
        raise _no_room(length, slots, size.kv, "the system does not give that") from None
    if streamed is not None:
        loaded = [each for each in (runtime, draft) if each is not None]
        fixed = size.weights + size.kv + PROCESS + sum(each.workspace for each in loaded)
        _share_out(room - fixed, loaded, sizes[: len(loaded)], lambda least: no_room(room, fixed, least, ram))
    return runtime


def _head(
    family: Family,
    checkpoint: Checkpoint,
    model: Declared,
    left: int,
    bytes_of: Callable[[Plan, Mapping[str, Tensor]], Sizes],
    wanted: bool | None,
) -> Declared | None:
    """The draft head to load, if there is one and it is `wanted`, or, where nobody says (None), if it is whole and the
    `left` bytes hold it."""
    if wanted is False:
        return None
    try:
        head = declare_draft(family, checkpoint, model[0])
        if head is None or wanted:
            return head
        more = _beside(bytes_of(*head), head[1], model[1]).total
        if more > left:
            raise SettingError(f"it takes {in_words(more)}, beside the model there are {in_words(max(0, left))}")
        return head
    except (ColibriError, MemoryError) as error:
        if wanted:
            raise
        log.warning("the draft head is left out: %s", error)
        return None


def _beside(sizes: Sizes, head: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> Sizes:
    """What a head takes besides the model, whose weights it may share."""
    shared = sum(tensor.nbytes for name, tensor in head.items() if name in model)
    return replace(sizes, weights=max(0, sizes.weights - shared))


def _load_head(load: Callable[..., NativeRuntime], head: Declared | None, wanted: bool | None) -> NativeRuntime | None:
    try:
        return None if head is None else load(*head, hidden=True)
    except (ColibriError, ValueError, MemoryError) as error:
        if wanted:
            raise
        log.warning("the draft head is left out: %s", error)
        return None


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


def _no_room(context: int, slots: int, kv: int, reason: str) -> SettingError:
    return SettingError(
        f"--ctx {context} with --kv-slots {slots} needs {kv / GIB:.1f} GiB for the cache, {reason}; lower one of them"
    )
