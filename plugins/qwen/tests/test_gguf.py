"""GGUF files of the models with delta networks, as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import colibri_qwen
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import load_runtime
from colibri.testing.checkpoints import write_gguf
from colibri.testing.drive import logits_of
from colibri.testing.gguf import GgufConformance
from colibri.testing.storage import values_of
from colibri_qwen import Qwen

DATA = Path(__file__).parent / "data"


class TestQwenGguf(GgufConformance):
    plugin = colibri_qwen
    family = "qwen"
    models = {name: DATA / name / "model.gguf" for name in ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen4_exp")}


def test_the_first_converters_left_projections_as_they_are_published(tmp_path: Path) -> None:
    found = open_checkpoint(DATA / "qwen3_next" / "model.gguf")
    published = open_checkpoint(DATA / "qwen3_next")
    arrays = {name: values_of(tensor).astype(np.float32) for name, tensor in found.tensors.items()}
    layers = [name.split(".")[1] for name in arrays if name.endswith(".attn_qkv.weight")]
    for layer in layers:
        del arrays[f"blk.{layer}.attn_qkv.weight"], arrays[f"blk.{layer}.attn_gate.weight"]
        whole = published.tensor(f"model.layers.{layer}.linear_attn.in_proj_qkvz.weight")
        arrays[f"blk.{layer}.ssm_in.weight"] = values_of(whole).astype(np.float32)
    assert layers
    older = open_checkpoint(write_gguf(tmp_path / "older.gguf", found.metadata, arrays))
    with np.load(DATA / "qwen3_next" / "reference.npz") as stored:
        ids, expected = stored["prompt_ids"].tolist(), stored["logits_full"]
    runtime = load_runtime(Qwen(), older, context=64, slots=1, max_rows=64)
    assert np.abs(logits_of(runtime, ids) - expected).max() < 2e-3


@pytest.mark.parametrize(
    ("model", "template", "name"),
    [
        ("qwen3_5", "", "qwen3.6"),
        ("qwen3_5_moe", "{{ reasoning_effort|default('xhigh') }}", "qwen3.8"),
        ("qwen3_next", "", "qwen3-next"),
        ("qwen4_exp", "", "qwen3.8-flash-next"),
    ],
)
def test_the_variant_is_read_from_the_architecture_and_the_template(model: str, template: str, name: str) -> None:
    found = open_checkpoint(DATA / model / "model.gguf")
    metadata = {**found.metadata, "tokenizer.chat_template": template}
    variant = Qwen().variant_for(replace(found, metadata=metadata))
    assert variant is not None
    assert variant.name == name
