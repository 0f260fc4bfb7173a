"""A plan as text: one line an operation, for plugin authors to read and compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .checkpoint import Tensor
from .plan import Node, Plan, State


def plan_lines(plan: Plan, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """The plan line by line: `%7 [896] = linear %6  name [896, 896] q4_k`."""
    yield f"plan {plan.hash()}: vocabulary {plan.vocab}, context {plan.context}, {len(plan.nodes)} operations"
    first = 0
    for index, state in enumerate(plan.states, 1):
        if index == len(plan.states) or plan.states[index] != state:
            yield f"states {first} to {index - 1}: {_state(state)}"
            first = index
    for node in plan.nodes:
        yield _line(plan, tensors, node)
    if plan.hidden >= 0:
        yield f"hidden %{plan.hidden}"
    yield f"logits %{plan.logits}"


def _line(plan: Plan, tensors: Mapping[str, Tensor], node: Node) -> str:
    made = f"%{node.out} [{plan.widths[node.out]}] = " if node.out >= 0 else ""
    parts = [f"{made}{node.op}", *(f"%{value}" if value >= 0 else "-" for value in node.inputs)]
    for index in node.weights:
        if index < 0:
            continue
        weight = plan.weights[index]
        parts.append(f" {weight.name} {list(weight.shape)} {tensors[weight.name].dtype}")
    if node.bank >= 0:
        bank = plan.banks[node.bank]
        types = sorted({tensors[plan.weights[i].name].dtype for kind in (bank.gate, bank.up, bank.down) for i in kind})
        parts.append(f" {bank.name} {len(bank.gate)} x [{bank.inner}, {bank.width}] {'/'.join(types)}")
    if node.states:
        parts.append(f" state={'+'.join(map(str, node.states))}")
    parts.extend(f" {name}={_short(value)}" for name, value in node.attrs.items() if value or name != "group")
    return " ".join(parts)


def _state(state: State) -> str:
    if state.kind == "recurrent":
        return f"recurrent, {state.width} values each"
    place = "position" if state.every == 1 else f"{state.every} positions"
    return f"rows of {state.width} values a {place} each" + (f", the last {state.window}" if state.window else "")


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"({len(value)}: {value[0]:.6g}..{value[-1]:.6g})" if value else "()"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
