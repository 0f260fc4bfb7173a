"""Draft heads against transformers, which ran small ones with random weights behind the models of tests/data."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import colibri_deepseek
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, declare_draft, load_runtime
from colibri.testing.drafts import DraftConformance, drafts_of
from colibri.testing.heads import write_with_head
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.published import fp8, republish
from colibri_deepseek import DeepSeek

DATA = Path(__file__).parent / "data"


class TestDeepSeekDrafts(DraftConformance):
    plugin = colibri_deepseek
    family = "deepseek"
    models = {name: DATA / name for name in ("deepseek_v3", "deepseek_v32", "deepseek_v4", "deepseek_v4_hub")}


def test_a_head_in_8_bits_as_it_is_released(tmp_path: Path) -> None:
    source = DATA / "deepseek_v32"
    whole = write_with_head(source, tmp_path / "whole")
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
