"""Draft heads against transformers, which ran small ones with random weights behind the models of tests/data."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

import colibri_mimo
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, declare_draft, load_runtime
from colibri.testing.drafts import DraftConformance, drafts_of
from colibri.testing.heads import write_with_head
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.published import Encoder, fp8, fp8_shards, republish
from colibri_mimo import Mimo

DATA = Path(__file__).parent / "data"


class TestMimoDrafts(DraftConformance):
    plugin = colibri_mimo
    family = "mimo"
    models = {name: DATA / name for name in ("mimo_v2", "mimo_v2_flash")}


def as_released(name: str) -> Encoder | None:
    """8-bit floats, for q, k and v in blocks of each shard; o_proj and eh_proj stay as they are."""
    if ".mtp." not in name:
        return None
    if ".qkv_proj." in name:
        return partial(fp8_shards, shards=2, block=32)
    return partial(fp8, block=32) if ".mlp." in name else None


def test_a_head_in_8_bits_as_it_is_released(tmp_path: Path) -> None:
    source = write_with_head(DATA / "mimo_v2", tmp_path / "whole")
    stored, plain = republish(source, tmp_path, as_released, {"quantization_config": {"quant_method": "fp8"}})
    family, checkpoint = Mimo(), open_checkpoint(plain)
    head = declare_draft(family, checkpoint, declare(family, checkpoint)[0])
    draft = load_runtime(family, open_checkpoint(stored), drafts=True, context=64).draft
    assert head is not None
    assert draft is not None
    with np.load(DATA / "mimo_v2" / "draft.npz") as reference:
        hidden = reference["draft_hidden"]
    ids = [7 * i % 250 for i in range(len(hidden))]
    expected = drafts_of(InterpretedRuntime(*head, context=64), ids, hidden)
    assert np.abs(drafts_of(draft, ids, hidden) - expected).max() < 2e-3
