"""Draft heads against transformers, which ran small ones with random weights behind the models of tests/data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import colibri_qwen
from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.load import declare, declare_draft, load_runtime
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.drafts import DraftConformance, drafts_of
from colibri.testing.storage import values_of
from colibri_qwen import Qwen

DATA = Path(__file__).parent / "data"


class TestQwenDrafts(DraftConformance):
    plugin = colibri_qwen
    family = "qwen"
    models = {name: DATA / name for name in ("qwen3_next", "qwen3_5", "qwen3_5_moe")}


def with_head(folder: Path, name: str, *, apart: bool = False, **config: object) -> Checkpoint:
    """A model with its head, whose experts may lie one by one even where those of the model do not."""
    arrays = {tensor.name: values_of(tensor) for tensor in open_checkpoint(DATA / name).tensors.values()}
    recipe = json.loads((DATA / name / "draft.json").read_text(encoding="utf-8"))
    head = dict(seeded_weights(**recipe))
    if apart:
        stem = "mtp.layers.0.mlp.experts"
        both, down = head.pop(f"{stem}.gate_up_proj"), head.pop(f"{stem}.down_proj")
        for e, (pair, last) in enumerate(zip(both, down, strict=True)):
            head[f"{stem}.{e}.gate_proj.weight"], head[f"{stem}.{e}.up_proj.weight"] = np.split(pair, 2)
            head[f"{stem}.{e}.down_proj.weight"] = last
    stored = json.loads((DATA / name / "config.json").read_text(encoding="utf-8"))
    stored.get("text_config", stored).update(config)
    return open_checkpoint(write_checkpoint(folder, stored, {**arrays, **head}))


def test_a_heads_experts_may_lie_otherwise_than_the_models(tmp_path: Path) -> None:
    with np.load(DATA / "qwen3_5_moe" / "reference.npz") as stored:
        ids = stored["prompt_ids"].tolist()
    with np.load(DATA / "qwen3_5_moe" / "draft.npz") as stored:
        hidden = stored["draft_hidden"]
    found = []
    for apart in (False, True):
        checkpoint = with_head(tmp_path / str(apart), "qwen3_5_moe", apart=apart)
        draft = load_runtime(Qwen(), checkpoint, drafts=True, context=64).draft
        assert draft is not None
        found.append(drafts_of(draft, ids[1:], hidden))
    assert np.array_equal(*found)


def test_a_head_with_an_embedding_of_its_own_is_refused(tmp_path: Path) -> None:
    checkpoint = with_head(tmp_path, "qwen3_5", mtp_use_dedicated_embeddings=True)
    plan, _ = declare(Qwen(), checkpoint)
    with pytest.raises(CheckpointError, match="mtp_use_dedicated_embeddings is true"):
        declare_draft(Qwen(), checkpoint, plan)


def test_the_head_of_flash_next_is_left_alone() -> None:
    checkpoint = open_checkpoint(DATA / "qwen4_exp")
    checkpoint = replace(checkpoint, tensors={**checkpoint.tensors, "mtp.fc.weight": checkpoint.tensor("lm_head.weight")})
    assert declare_draft(Qwen(), checkpoint, declare(Qwen(), checkpoint)[0]) is None
