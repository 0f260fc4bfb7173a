"""The compute side of `colibri debug`: logits of given tokens, and the plan of a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ..compute.checkpoint import open_checkpoint
from ..compute.load import declare, declare_draft, load_runtime
from ..compute.print import plan_lines
from ..compute.runtime import Row, Runtime
from ..errors import BadRequest, CheckpointError, ColibriError, SettingError
from ..settings import Settings

if TYPE_CHECKING:
    from ..plugins import Plugins


class LogitsCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token ids of a prompt, and the first position whose logits are wanted."""

    ids: list[int]
    start: int = msgspec.field(default=0, name="from")


_CASE = msgspec.json.Decoder(LogitsCase)


def logits(settings: Settings, plugins: Plugins, lines: Iterable[str | bytes], write: Callable[[str], object]) -> int:
    """Answer each line {"ids": […], "from": position} with {"from": position, "logits": [[…] per position]}.

    A line that cannot be answered gets {"error": reason} and makes the result 1; the next lines are answered all the same.
    Raises ColibriError if the model cannot be loaded.
    """
    checkpoint = open_checkpoint(_model(settings))
    family, _ = plugins.family_for(checkpoint)
    runtime = load_runtime(
        family,
        checkpoint,
        context=settings.ctx,
        slots=1,
        max_rows=settings.prefill_chunk,
        threads=settings.threads,
        isa=settings.isa,
    )
    failed = 0
    for line in lines:
        if not line.strip():
            continue
        answer: dict[str, Any]
        try:
            case = _CASE.decode(line)
            answer = {"from": case.start, "logits": list(_rows(runtime, case))}
        except (ColibriError, ValueError) as error:  # ValueError: not JSON, or not of this form
            answer = {"error": str(error)}
            failed = 1
        write(json.dumps(answer))
    return failed


def _rows(runtime: Runtime, case: LogitsCase) -> Iterable[list[float]]:
    if not case.ids:
        raise BadRequest("ids: give at least one token")
    if len(case.ids) > runtime.context:
        raise BadRequest(f"ids: {len(case.ids)} tokens do not fit the context of {runtime.context}; raise --ctx")
    for i, token in enumerate(case.ids):
        if not 0 <= token < runtime.vocab:
            raise BadRequest(f"ids[{i}]: {token} is no token, they go from 0 to {runtime.vocab - 1}")
    if not 0 <= case.start < len(case.ids):
        raise BadRequest(f"from: {case.start} is no position of {len(case.ids)} tokens")
    for first in range(0, len(case.ids), runtime.max_rows):
        chunk = case.ids[first : first + runtime.max_rows]
        rows = [Row(token, 0, first + i, logits=first + i >= case.start) for i, token in enumerate(chunk)]
        runtime.step(rows)
        for index in range(sum(row.logits for row in rows)):
            yield [float(value) for value in runtime.logits(index)]


def graph(
    settings: Settings, plugins: Plugins, write: Callable[[str], object], as_json: bool = False, *, draft: bool = False
) -> int:
    """Print the plan of a model, or of its `draft` head, one line an operation, or as one JSON object with the plan's hash.

    Raises ColibriError if the files are broken, no family serves them, or they have no draft head.
    """
    checkpoint = open_checkpoint(_model(settings))
    family, _ = plugins.family_for(checkpoint)
    plan, tensors = declare(family, checkpoint)
    if draft:
        head = declare_draft(family, checkpoint, plan)
        if head is None:
            raise CheckpointError("has no draft head that can be computed", file=checkpoint.path)
        plan, tensors = head
    if as_json:
        types = {name: tensor.dtype for name, tensor in tensors.items()}
        write(msgspec.json.encode({"hash": plan.hash(), "plan": plan, "types": types}).decode())
        return 0
    for line in plan_lines(plan, tensors):
        write(line)
    return 0


def _model(settings: Settings) -> str:
    if settings.model is None:
        raise SettingError("no model given: use --model PATH")
    return settings.model
