from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.graph import Graph, Value
from colibri.compute.load import declare
from colibri.compute.plan import Codes
from colibri.compute.rope import Rope
from colibri.errors import CheckpointError, PluginError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_safetensors


def test_a_declaration_becomes_a_plan(toy, toy_model: Checkpoint) -> None:
    plan, tensors = declare(toy, toy_model)
    assert (plan.vocab, plan.context) == (96, 64)
    assert [weight.name for weight in plan.weights] == list(tensors)
    assert {node.op for node in plan.nodes} == {
        "embed", "rms_norm", "linear", "add", "mul", "scale", "clamp", "glu", "rope", "attention", "route", "experts",
    }  # fmt: skip
    assert [node.out for node in plan.nodes] == list(range(len(plan.widths)))
    assert all(value < node.out for node in plan.nodes for value in node.inputs)
    (bank,) = plan.banks
    assert (bank.name, bank.width, bank.inner, len(bank.gate)) == ("layer.experts", 64, 32, 5)
    (state,) = plan.states
    assert (state.kind, state.planes, state.window, state.width) == ("rows", (16, 16, 16, 16), 20, 64)
    attention = next(node for node in plan.nodes if node.op == "attention")
    assert attention.attrs == {"heads": 4, "kv_heads": 2, "scale": 0.25, "window": 20, "every": 1}
    route = next(node for node in plan.nodes if node.op == "route")
    assert route.attrs == {
        "top_k": 2,
        "score": "softmax",
        "normalise": True,
        "factor": 2.5,
        "groups": 1,
        "top_groups": 1,
        "shared": 0,
    }
    assert plan.widths[plan.logits] == 96


def test_the_same_declaration_has_the_same_hash_whatever_the_format(toy, toy_model: Checkpoint, toy_gguf) -> None:
    plan, _ = declare(toy, toy_model)
    again, _ = declare(toy, toy_model)
    other, _ = declare(toy, open_checkpoint(toy_gguf("q8_0")))
    assert plan == again == other
    assert plan.hash() == other.hash()


def test_a_weight_used_twice_is_one_weight(toy_model: Checkpoint) -> None:
    g = Graph(toy_model)
    assert g.w("embed.weight") == g.w("embed.weight")
    assert len(g.tensors) == 1


SHAPES = {
    "m.weight": (8, 4),
    "v.weight": (4,),
    "v2.weight": (3,),
    "t.weight": (2, 2, 2),
    "e.weight": (6, 4),
    "n.weight": (4, 8),
}


@pytest.fixture
def g(tmp_path: Path) -> Graph:
    return Graph(open_checkpoint(write_checkpoint(tmp_path, {}, seeded_weights(SHAPES, 1))))


def x_of(g: Graph) -> Value:
    return g.embed(g.tokens, g.w("e.weight"))


BAD: dict[str, tuple[Callable[[Graph], object], str]] = {
    "missing": (lambda g: g.w("absent.weight"), "tensor 'absent.weight': is missing"),
    "three dimensions": (lambda g: g.w("t.weight"), "tensor 't.weight': has shape [2, 2, 2]"),
    "rows": (lambda g: g.w("m.weight", rows=9), "tensor 'm.weight': weight: has shape [8, 4], 9 rows are needed"),
    "embed a vector": (lambda g: g.embed(g.tokens, g.w("v.weight")), "tensor 'v.weight': embed: has shape [4]"),
    "norm width": (lambda g: g.rms_norm(x_of(g), g.w("v2.weight"), 1e-6), "'v2.weight': rms_norm: has shape [3], [4]"),
    "norm group": (lambda g: g.rms_norm(x_of(g), g.w("v2.weight"), 1e-6, group=3), "rms_norm"),
    "linear width": (lambda g: g.linear(x_of(g), g.w("n.weight")), "'n.weight': linear: takes 8 values a row"),
    "bias": (lambda g: g.linear(x_of(g), g.w("m.weight"), g.w("v.weight")), "tensor 'v.weight': linear: has shape [4], [8]"),
    "add": (lambda g: x_of(g) + g.linear(x_of(g), g.w("m.weight")), "'m.weight': add: gives 8 values a row, 4"),
    "mul": (lambda g: x_of(g) * g.linear(x_of(g), g.w("m.weight")), "mul: gives 8"),
    "swiglu": (lambda g: g.swiglu(x_of(g), g.linear(x_of(g), g.w("m.weight"))), "glu: gives 8"),
    "heads": (lambda g: g.rope(x_of(g), Rope(3, (1.0,))), "'e.weight': rope: gives 4 values a row, no whole"),
    "keys": (lambda g: g.attention(x_of(g), x_of(g), x_of(g), state=g.kv(0, 2, 4)), "attention: gives 4 values a row, 8"),
    "key heads": (
        lambda g: g.attention(
            x_of(g), g.linear(x_of(g), g.w("m.weight")), g.linear(x_of(g), g.w("m.weight")), state=g.kv(0, 4, 2)
        ),
        "attention: gives 2 heads, 4 key heads cannot serve them",
    ),
    "codes": (lambda g: g.codes(g.w("e.weight"), 4), "'e.weight': codes: has 6 rows, no whole number for each of 4 codes"),
    "codes of nothing": (lambda g: g.codes(g.w("e.weight"), 0), "'e.weight': codes: has 6 rows"),
    "logits": (lambda g: g.logits(g.linear(x_of(g), g.w("m.weight"))), "logits: gives 8 logits for 6 tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_named(g: Graph, name: str) -> None:
    declare_it, message = BAD[name]
    with pytest.raises(CheckpointError) as caught:
        declare_it(g)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "declare_it",
    [
        lambda g: (g.kv(0, 1, 4), g.kv(0, 1, 4)),
        lambda g: g.clamp(x_of(g), 2, -2),
        lambda g: g.clamp(x_of(g), float("nan"), 2),
        lambda g: g.rope(x_of(g), Rope(4, (1.0, 1.0), offset=2)),
        lambda g: g.plan(),
        lambda g: (g.context(8), g.plan()),
        lambda g: (g.logits(g.linear(x_of(g), g.w("e.weight"))), g.logits(x_of(g))),
        lambda g: (g.logits(g.linear(x_of(g), g.w("e.weight"))), g.plan()),
    ],
)
def test_a_wrong_declaration_is_the_plugins_fault(g: Graph, declare_it: Callable[[Graph], object]) -> None:
    with pytest.raises(PluginError, match=r"^graph: "):
        declare_it(g)


def test_a_plan_says_which_codes_it_reads(g: Graph) -> None:
    x = x_of(g)
    g.logits(g.linear(x + g.codes(g.w("m.weight"), 4), g.w("e.weight")))
    g.context(8)
    assert g.plan().codes == Codes(each=4, limit=2)
    assert not Codes(4, 2).fit(b"\1\0" * 3)
    assert not Codes(4, 2).fit(b"\1\0\0\0\0\0\0\1")
    assert Codes(4, 2).fit(b"\1\0\0\0\0\0\1\0")


def test_a_plan_says_what_a_draft_head_takes_and_what_it_is_given(g: Graph) -> None:
    given = g.given(4)
    g.context(8)
    g.logits(g.linear(given, g.w("e.weight")))
    assert (g.plan().given, g.plan().hidden) == (4, -1)
    assert g.hidden(given) is given
    assert g.plan().hidden == given.index
    with pytest.raises(PluginError, match="hidden is declared twice"):
        g.hidden(given)
    with pytest.raises(PluginError, match="given: 0 numbers a row"):
        g.given(0)


def test_a_value_of_another_graph_is_refused(g: Graph, toy_model: Checkpoint) -> None:
    other = Graph(toy_model)
    with pytest.raises(PluginError, match="another graph"):
        g.scale(other.embed(other.tokens, other.w("embed.weight")), 2.0)


def test_a_storage_type_without_arithmetic_is_refused_only_when_it_is_used(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {}, seeded_weights(SHAPES, 1))
    data = write_safetensors(
        tmp_path / "model.safetensors", seeded_weights({"x.weight": (4, 4)}, 1), dtype="bf16"
    ).read_bytes()
    (tmp_path / "model.safetensors").write_bytes(data.replace(b'"BF16"', b'"U16" '))
    checkpoint = open_checkpoint(folder)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: tensor 'x\.weight': is stored as U16"):
        Graph(checkpoint).w("x.weight")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"layer.router.weight": (4, 64)}, "moe: scores 4 experts, there are 5"),
        ({"layer.experts.3.up_proj.weight": (31, 64)}, "experts: has shape [31, 64], [32, 64] is needed"),
        ({"layer.experts.4.down_proj.weight": (32, 64)}, "experts: has shape [32, 64], [64, 32] is needed"),
        ({"layer.experts.0.gate_proj.weight": (32, 48)}, "experts: takes 48 values a row, it is given 64"),
    ],
)
def test_experts_have_to_fit(toy, toy_folder: Path, tmp_path: Path, edit, message: str) -> None:
    shapes = {name: tensor.shape for name, tensor in open_checkpoint(toy_folder).tensors.items()} | edit
    write_checkpoint(tmp_path, {"context": 8, "top_k": 2}, seeded_weights(shapes, 1))
    with pytest.raises(CheckpointError) as caught:
        declare(toy, open_checkpoint(tmp_path))
    assert message in str(caught.value)


def test_more_choices_than_experts_are_refused(toy, toy_folder: Path, tmp_path: Path) -> None:
    shapes = {name: tensor.shape for name, tensor in open_checkpoint(toy_folder).tensors.items()}
    write_checkpoint(tmp_path, {"context": 8, "top_k": 6}, seeded_weights(shapes, 1))
    with pytest.raises(CheckpointError, match="scores 5 experts, 6 cannot be chosen"):
        declare(toy, open_checkpoint(tmp_path))
