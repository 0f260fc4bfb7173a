"""Draft heads against transformers, which ran small ones with random weights behind the models of tests/data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import colibri_qwen
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, declare_draft, load_runtime
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights
from colibri.testing.drafts import DraftConformance, drafts_of
from colibri.testing.heads import head_of, write_with_head
from colibri_qwen import Qwen

DATA = Path(__file__).parent / "data"


class TestQwenDrafts(DraftConformance):
    plugin = colibri_qwen
    family = "qwen"
    models = {name: DATA / name for name in ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen4_exp")}


def one_by_one(head: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A head with each of its experts in tensors of its own."""
    found = dict(head)
    stem = "mtp.layers.0.mlp.experts"
    both, down = found.pop(f"{stem}.gate_up_proj"), found.pop(f"{stem}.down_proj")
    for e, (pair, last) in enumerate(zip(both, down, strict=True)):
        found[f"{stem}.{e}.gate_proj.weight"], found[f"{stem}.{e}.up_proj.weight"] = np.split(pair, 2)
        found[f"{stem}.{e}.down_proj.weight"] = last
    return found


def test_a_heads_experts_may_lie_otherwise_than_the_models(tmp_path: Path) -> None:
    with np.load(DATA / "qwen3_5_moe" / "reference.npz") as stored:
        ids = stored["prompt_ids"].tolist()
    with np.load(DATA / "qwen3_5_moe" / "draft.npz") as stored:
        hidden = stored["draft_hidden"]
    head = seeded_weights(**head_of(DATA / "qwen3_5_moe"))
    found = []
    for name, stored in (("fused", head), ("apart", one_by_one(head))):
        checkpoint = open_checkpoint(write_with_head(DATA / "qwen3_5_moe", tmp_path / name, stored))
        draft = load_runtime(Qwen(), checkpoint, drafts=True, context=64).draft
        assert draft is not None
        found.append(drafts_of(draft, ids[1:], hidden))
    assert np.array_equal(*found)


def test_a_head_with_an_embedding_of_its_own_is_refused(tmp_path: Path) -> None:
    written = write_with_head(DATA / "qwen3_5", tmp_path, mtp_use_dedicated_embeddings=True)
    checkpoint = open_checkpoint(written)
    plan, _ = declare(Qwen(), checkpoint)
    with pytest.raises(CheckpointError, match="mtp_use_dedicated_embeddings is true"):
        declare_draft(Qwen(), checkpoint, plan)
