"""Draft heads against transformers, which ran small ones with random weights behind the models of tests/data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import colibri_glm
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, declare_draft
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.drafts import DraftConformance
from colibri.testing.storage import values_of
from colibri_glm import Glm

DATA = Path(__file__).parent / "data"


class TestGlmDrafts(DraftConformance):
    plugin = colibri_glm
    family = "glm"
    models = {name: DATA / name for name in ("glm_moe_dsa",)}


def test_the_head_of_a_model_with_residual_streams_is_left_alone(tmp_path: Path) -> None:
    arrays = {tensor.name: values_of(tensor) for tensor in open_checkpoint(DATA / "glm5_next").tensors.values()}
    arrays["model.language_model.layers.5.eh_proj.weight"] = np.ones((64, 128))
    config = json.loads((DATA / "glm5_next" / "config.json").read_text(encoding="utf-8"))
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, config, arrays))
    assert declare_draft(Glm(), checkpoint, declare(Glm(), checkpoint)[0]) is None
