"""The interpreter against arithmetic done by hand: it is what everything else is compared with."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.plan import Bank, Node, Plan, State, Weight
from colibri.compute.runtime import Row
from colibri.family import Sampling
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.interpreter import InterpretedRuntime

TABLE = np.array([[3.0, -4.0], [0.0, 0.0], [1.0, 2.0]], np.float32)


def runtime(tmp_path: Path, nodes: list[Node], widths: list[int], *, slots: int = 1, bank: Bank | None = None, **weights):
    """A plan that starts with token rows of TABLE (value 0) and ends in its last value."""
    arrays = {"table": TABLE, **{name: np.array(value, np.float32) for name, value in weights.items()}}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, {}, arrays))
    plan = Plan(
        vocab=3, context=8, widths=(2, *widths), nodes=(Node("embed", (), 0, (0,)), *nodes),
        weights=tuple(Weight(name, array.shape) for name, array in arrays.items()), banks=(bank,) if bank else (),
        states=(State("rows", (2, 2)),), logits=len(widths),
    )  # fmt: skip
    return InterpretedRuntime(plan, checkpoint.tensors, slots=slots)


def values(made: InterpretedRuntime, *rows: Row) -> list[list[float]]:
    made.step(rows)
    return made.values[made.plan.logits].tolist()


def one(tmp_path: Path, node: Node, token: int = 0, **weights) -> list[float]:
    (row,) = values(runtime(tmp_path, [node], [2], **weights), Row(token, 0, 0))
    return row


def test_elementwise_operations(tmp_path: Path) -> None:
    root = math.sqrt(12.5 + 0.5)
    assert one(tmp_path, Node("rms_norm", (0,), 1, (1,), attrs={"eps": 0.5, "group": 0}), w=[2, 1]) == pytest.approx(
        [2 * 3 / root, -4 / root]
    )
    assert one(tmp_path, Node("rms_norm", (0,), 1, (1,), attrs={"eps": 0.0, "group": 1}), w=[5]) == [5, -5]
    assert one(tmp_path, Node("linear", (0,), 1, (1,)), w=[[1, 1], [2, 0.5]]) == [-1, 4]
    assert one(tmp_path, Node("linear", (0,), 1, (1, 2)), w=[[1, 1], [2, 0.5]], b=[10, 20]) == [9, 24]
    assert one(tmp_path, Node("add", (0, 0), 1)) == [6, -8]
    assert one(tmp_path, Node("mul", (0, 0), 1)) == [9, 16]
    assert one(tmp_path, Node("scale", (0,), 1, attrs={"factor": 0.5})) == [1.5, -2]
    assert one(tmp_path, Node("clamp", (0,), 1, attrs={"low": -1.0, "high": 2.0})) == [2, -1]
    silu = [3 / (1 + math.exp(-3)), -4 / (1 + math.exp(4))]
    assert one(tmp_path, Node("glu", (0, 0), 1)) == pytest.approx([silu[0] * 3, silu[1] * -4])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rope(tmp_path: Path, interleaved: bool) -> None:
    attrs = {"heads": 1, "head_dim": 2, "offset": 0, "inv_freq": (math.pi / 2,), "factor": 2.0, "interleaved": interleaved}
    made = runtime(tmp_path, [Node("rope", (0,), 1, attrs=attrs)], [2])
    found = values(made, *(Row(0, 0, p) for p in range(3)))
    assert found[0] == pytest.approx([6, -8])
    assert found[1] == pytest.approx([8, 6])  # a quarter turn: (a, b) -> (-b, a)
    assert found[2] == pytest.approx([-6, 8])


def test_rope_pairs_and_offset(tmp_path: Path) -> None:
    four = [[1, 0], [0, 1], [1, 0], [0, 1]]  # (a, b) -> (a, b, a, b)
    base = {"heads": 1, "head_dim": 4, "inv_freq": (math.pi / 2,), "factor": 1.0}
    wide = Node("linear", (0,), 1, (1,))
    for attrs, expected in (
        ({**base, "offset": 2, "interleaved": True}, [3, -4, 4, 3]),
        ({**base, "offset": 0, "interleaved": True}, [4, 3, 3, -4]),
        ({**base, "offset": 0, "inv_freq": (math.pi / 2, 0.0), "interleaved": False}, [-3, -4, 3, -4]),
    ):
        made = runtime(tmp_path, [wide, Node("rope", (1,), 2, attrs=attrs)], [4, 4], w=four)
        assert values(made, Row(0, 0, 0), Row(0, 0, 1))[1] == pytest.approx(expected)


def attention(window: int = 0) -> Node:
    return Node("attention", (0, 0, 0), 1, states=(0,), attrs={"heads": 1, "kv_heads": 1, "scale": 1.0, "window": window})


def test_attention_is_causal_and_keeps_slots_apart(tmp_path: Path) -> None:
    made = runtime(tmp_path, [attention()], [2], slots=2)
    found = values(made, Row(2, 0, 0), Row(1, 0, 1), Row(0, 1, 0), Row(2, 0, 2))
    assert found[0] == [1, 2]
    assert found[1] == [0.5, 1]  # a zero query weighs both rows alike
    assert found[2] == [3, -4]
    high, low = math.exp(5), 1.0
    assert found[3] == pytest.approx([2 * high / (2 * high + low), 4 * high / (2 * high + low)])


def test_attention_in_a_window_after_a_rewind_and_a_copy(tmp_path: Path) -> None:
    made = runtime(tmp_path, [attention(window=2)], [2], slots=2)
    values(made, Row(2, 0, 0), Row(0, 0, 1), Row(0, 0, 2))
    assert values(made, Row(2, 0, 1), Row(1, 0, 2))[1] == [0.5, 1]  # sees positions 1 and 2 only, as they are now
    made.copy(0, 1, 2)
    assert values(made, Row(1, 1, 2))[0] == [0.5, 1]
    with pytest.raises(ValueError, match="slot 1 holds 3 positions, not 4"):
        made.copy(1, 0, 4)


def test_heads_share_key_heads(tmp_path: Path) -> None:
    twice = [[1, 0], [0, 1], [-1, 0], [0, -1]]
    node = Node("attention", (1, 0, 0), 2, states=(0,), attrs={"heads": 2, "kv_heads": 1, "scale": 1.0, "window": 0})
    made = runtime(tmp_path, [Node("linear", (0,), 1, (1,)), node], [4, 4], w=twice)
    found = values(made, Row(1, 0, 0), Row(2, 0, 1))[1]
    up, down = math.exp(5) / (math.exp(5) + 1), math.exp(-5) / (math.exp(-5) + 1)
    assert found == pytest.approx([up, 2 * up, down, 2 * down])


def test_routes_and_experts(tmp_path: Path) -> None:
    scores = Node("linear", (0,), 1, (1,))
    router = [[1, 0], [0, 0], [1, 0]]  # experts 0 and 2 tie: the lower index goes first
    one_share = math.exp(3) / (2 * math.exp(3) + 1)
    for normalise, factor, shares in ((False, 1.0, [one_share, one_share]), (True, 3.0, [1.5, 1.5])):
        attrs = {"top_k": 2, "score": "softmax", "normalise": normalise, "factor": factor}
        made = runtime(tmp_path, [scores, Node("route", (1,), 2, attrs=attrs)], [3, 4], r=router)
        assert values(made, Row(0, 0, 0))[0] == pytest.approx([0, 2, *shares])
    attrs = {"top_k": 1, "score": "softmax", "normalise": True, "factor": 2.0}
    nodes = [scores, Node("route", (1,), 2, attrs=attrs), Node("experts", (0, 2), 3, bank=0)]
    bank = Bank("b", 2, 1, (2, 5, 2), (3, 3, 3), (4, 4, 4))
    made = runtime(tmp_path, nodes, [3, 2, 2], bank=bank, r=router, g=[[1, 0]], u=[[0, 1]], d=[[1], [-1]], other=[[9, 9]])
    inner = 3 / (1 + math.exp(-3)) * -4
    assert values(made, Row(0, 0, 0))[0] == pytest.approx([2 * inner, -2 * inner])


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [Row(3, 0, 0)],
        [Row(-1, 0, 0)],
        [Row(0, 1, 0)],
        [Row(0, 0, 8)],
        [Row(0, 0, 1)],
        [Row(0, 0, 0), Row(0, 0, 2)],
        [Row(0, 0, 0), Row(0, 0, 0)],
        [Row(0, 0, 0)] * 300,
    ],
)
def test_rows_that_break_the_contract(tmp_path: Path, rows: list[Row]) -> None:
    with pytest.raises(ValueError, match=r"row|position|step"):
        runtime(tmp_path, [attention()], [2]).step(rows)


def test_tokens_are_picked_for_rows_that_ask(tmp_path: Path) -> None:
    made = runtime(tmp_path, [Node("linear", (0,), 1, (1,))], [3], w=[[0, 0], [1, 0], [0, 0.5]])
    rows = [Row(0, 0, 0, Sampling()), Row(0, 0, 1), Row(2, 0, 2, logits=True), Row(1, 0, 3, Sampling())]
    assert made.step(rows) == [1, 0]
    assert list(made.logits(0)) == [0, 3, -2]
    assert list(made.logits(1)) == [0, 1, 1]
    assert made.describe() == "numpy interpreter, float64"


def test_draws_follow_the_distribution_and_its_limits(tmp_path: Path) -> None:
    made = runtime(tmp_path, [Node("linear", (0,), 1, (1,))], [3], w=[[0, 0], [1, 0], [0, 0.5]])

    def shares(**rules) -> dict[int, float]:
        count = Counter(
            made.step([Row(2, 0, 0, Sampling(temperature=1.0, seed=5, **rules), draw)])[0] for draw in range(600)
        )
        return {token: n / 600 for token, n in count.items()}

    e = math.e / (2 * math.e + 1)
    free = shares()
    assert [free[token] for token in range(3)] == pytest.approx([1 - 2 * e, e, e], abs=0.07)
    assert shares(top_k=1) == {1: 1}
    assert set(shares(min_p=0.5)) == set(shares(top_p=0.8)) == {1, 2}
    assert made.step([Row(2, 0, 0, Sampling(temperature=1.0))])[0] in (0, 1, 2)
