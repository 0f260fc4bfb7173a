"""GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import colibri_mimo
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import load_runtime
from colibri.testing.checkpoints import write_gguf
from colibri.testing.drive import logits_of
from colibri.testing.gguf import GgufConformance
from colibri.testing.storage import values_of
from colibri_mimo import Mimo
from colibri_mimo.variants import MIMO_V2_5, MIMO_V2_6, MIMO_V2_FLASH, PERSONA

DATA = Path(__file__).parent / "data"


class TestMimoGguf(GgufConformance):
    plugin = colibri_mimo
    family = "mimo"
    models = {"mimo_v2_flash": DATA / "mimo_v2_flash" / "model.gguf"}


@pytest.mark.parametrize("template", ["", PERSONA])
def test_q_k_and_v_in_one_matrix_are_those_of_later_models(template: str, tmp_path: Path) -> None:
    """As converters write them: first the rows of q, then those of k, then those of v."""
    found = open_checkpoint(DATA / "mimo_v2_flash" / "model.gguf")
    assert Mimo().variant_for(found) == MIMO_V2_FLASH
    arrays = {name: values_of(tensor).astype(np.float32) for name, tensor in found.tensors.items()}
    for layer in range(5):
        parts = [arrays.pop(f"blk.{layer}.attn_{name}.weight") for name in "qkv"]
        arrays[f"blk.{layer}.attn_qkv.weight"] = np.concatenate(parts)
    metadata = {**found.metadata, "tokenizer.chat_template": template}
    fused = open_checkpoint(write_gguf(tmp_path / "fused.gguf", metadata, arrays))
    assert Mimo().variant_for(fused) == (MIMO_V2_5 if template else MIMO_V2_6)
    with np.load(DATA / "mimo_v2_flash" / "reference.npz") as stored:
        ids, expected = stored["prompt_ids"].tolist(), stored["logits_full"]
    runtime = load_runtime(Mimo(), fused, context=64, slots=1, max_rows=64)
    assert np.abs(logits_of(runtime, ids) - expected).max() < 2e-3
