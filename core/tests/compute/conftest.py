"""A toy family that uses every operation of a plan, and its model, made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.config import Config
from colibri.compute.graph import Graph
from colibri.compute.rope import Rope
from colibri.testing.checkpoints import seeded_weights, write_checkpoint, write_gguf

VOCAB, WIDTH, INNER, EXPERTS = 96, 64, 32, 5
SHAPES: dict[str, tuple[int, ...]] = {
    "embed.weight": (VOCAB, WIDTH),
    "layer.norm.weight": (WIDTH,),
    "layer.q.weight": (WIDTH, WIDTH),
    "layer.q.bias": (WIDTH,),
    "layer.q_norm.weight": (16,),
    "layer.k.weight": (32, WIDTH),
    "layer.v.weight": (32, WIDTH),
    "layer.o.weight": (WIDTH, WIDTH),
    "layer.gate.weight": (WIDTH, WIDTH),
    "layer.up.weight": (WIDTH, WIDTH),
    "layer.router.weight": (EXPERTS, WIDTH),
    **{f"layer.experts.{e}.{n}.weight": (INNER, WIDTH) for e in range(EXPERTS) for n in ("gate_proj", "up_proj")},
    **{f"layer.experts.{e}.down_proj.weight": (WIDTH, INNER) for e in range(EXPERTS)},
    "head.weight": (VOCAB, WIDTH),
}
CONFIG = {"model_type": "toy", "context": 64, "top_k": 2}
METADATA = {"general.architecture": "toy", "toy.context": 64, "toy.top_k": 2}


class Toy:
    """Only what the compute room asks of a family."""

    name = "toy"

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        c = Config.of(checkpoint)
        g.context(c.size("context"))
        w = g.scope("layer")
        x = g.embed(g.tokens, g.w("embed.weight", rows=VOCAB))
        h = g.rms_norm(x, w["norm.weight"], 1e-5)
        q = g.rms_norm(g.linear(h, w["q.weight"], w["q.bias"]), w["q_norm.weight"], 1e-6, group=16)
        k = g.clamp(g.linear(h, w["k.weight"]), -2, 2)
        v = g.linear(h, w["v.weight"]) * 0.5
        half = Rope(16, (1.0, 0.1, 0.01, 0.001), factor=1.1, offset=8)
        pairs = Rope(16, (1.0, 0.1, 0.01, 0.001), interleaved=True)
        q, k = (g.rope(g.rope(y, half), pairs) for y in (q, k))
        x = x + g.linear(g.attention(q, k, v, state=g.kv(0, 2, 16, window=20)), w["o.weight"])
        x = x + g.swiglu(g.linear(x, w["gate.weight"]), g.linear(x, w["up.weight"])) * x
        experts = w.experts("experts.{e}", EXPERTS)
        x = x + g.moe(x, router=w["router.weight"], experts=experts, top_k=c.size("top_k"), norm=True, factor=2.5)
        g.logits(g.linear(x, g.w("head.weight")))


@pytest.fixture(scope="session")
def toy() -> Toy:
    return Toy()


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy model as f32 safetensors."""
    folder = tmp_path_factory.mktemp("toy")
    return write_checkpoint(folder, CONFIG, seeded_weights(SHAPES, 3))


@pytest.fixture(scope="session")
def toy_model(toy_folder: Path) -> Checkpoint:
    return open_checkpoint(toy_folder)


@pytest.fixture(scope="session")
def toy_gguf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The toy model as GGUF, by the storage type of its matrices."""
    folder = tmp_path_factory.mktemp("toy-gguf")

    def made(dtype: str) -> Path:
        file = folder / f"{dtype}.gguf"
        if not file.exists():
            write_gguf(file, METADATA, seeded_weights(SHAPES, 3), dtype=dtype)
        return file

    return made
