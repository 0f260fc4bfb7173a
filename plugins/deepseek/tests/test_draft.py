"""Draft heads against transformers, which ran small ones with random weights behind the models of tests/data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from msgspec.structs import replace

import colibri_deepseek
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, declare_draft, load_runtime
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.drafts import DraftConformance, drafts_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.published import fp8, republish
from colibri.testing.storage import values_of
from colibri_deepseek import DeepSeek

DATA = Path(__file__).parent / "data"


class TestDeepSeekDrafts(DraftConformance):
    plugin = colibri_deepseek
    family = "deepseek"
    models = {name: DATA / name for name in ("deepseek_v3", "deepseek_v32")}


def test_the_head_of_v4_is_left_alone() -> None:
    checkpoint = open_checkpoint(DATA / "deepseek_v4")
    more = {**checkpoint.tensors, "mtp.0.e_proj.weight": checkpoint.tensor("norm.weight")}
    checkpoint = replace(checkpoint, tensors=more)
    assert declare_draft(DeepSeek(), checkpoint, declare(DeepSeek(), checkpoint)[0]) is None


def test_a_head_in_8_bits_as_it_is_released(tmp_path: Path) -> None:
    source = DATA / "deepseek_v32"
    arrays = {tensor.name: values_of(tensor) for tensor in open_checkpoint(source).tensors.values()}
    recipe = json.loads((source / "draft.json").read_text(encoding="utf-8"))
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    whole = write_checkpoint(tmp_path / "whole", config, {**arrays, **seeded_weights(**recipe)})
    wanted = re.compile(r"layers\.3\..*_proj(_with_mqa)?\.weight")
    extra = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    stored, plain = republish(whole, tmp_path, lambda name: fp8 if wanted.search(name) else None, extra)
    family, checkpoint = DeepSeek(), open_checkpoint(plain)
    head = declare_draft(family, checkpoint, declare(family, checkpoint)[0])
    draft = load_runtime(family, open_checkpoint(stored), drafts=True, context=64).draft
    assert head is not None
    assert draft is not None
    with np.load(source / "draft.npz") as reference:
        hidden = reference["draft_hidden"]
    ids = [7 * i % 250 for i in range(len(hidden))]
    expected = drafts_of(InterpretedRuntime(*head, context=64), ids, hidden)
    assert np.abs(drafts_of(draft, ids, hidden) - expected).max() < 2e-3
