"""Draft heads against transformers, which ran a small one with random weights behind the model of tests/data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colibri_inkling
from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.load import declare, declare_draft
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.drafts import DraftConformance, drafts_of
from colibri.testing.heads import head_of, write_with_head
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.storage import values_of
from colibri_inkling import Inkling

DATA = Path(__file__).parent / "data"
CHAIN = "model.mtp.chain_norm.weight"


class TestInklingDrafts(DraftConformance):
    plugin = colibri_inkling
    family = "inkling"
    models = {"inkling": DATA / "inkling"}


def with_head(folder: Path, mtp_config: dict[str, Any] | None = None, **text_config: object) -> Checkpoint:
    """The model with its head and the norm that heads may share, and another `mtp_config`."""
    head = {**seeded_weights(**head_of(DATA / "inkling")), CHAIN: np.ones(64)}
    written = write_with_head(DATA / "inkling", folder, head, **text_config)
    config = json.loads((written / "config.json").read_text(encoding="utf-8"))
    (written / "config.json").write_text(json.dumps({**config, "mtp_config": mtp_config}), encoding="utf-8")
    return open_checkpoint(written)


def head_runtime(checkpoint: Checkpoint) -> InterpretedRuntime:
    head = declare_draft(Inkling(), checkpoint, declare(Inkling(), checkpoint)[0])
    assert head is not None
    return InterpretedRuntime(*head, context=64)


def test_a_norm_that_heads_share_comes_before_the_logits(tmp_path: Path) -> None:
    """Where all its weights are 1, it only makes each row as long as the others."""
    with np.load(DATA / "inkling" / "draft.npz") as stored:
        hidden = stored["draft_hidden"][:8]
    local = {"local_layer_ids": [0]}
    plain = drafts_of(head_runtime(with_head(tmp_path / "plain", local)), range(4, 12), hidden)
    chained = with_head(tmp_path / "chained", {**local, "chain_hidden_post_norm": True})
    shares = drafts_of(head_runtime(chained), range(4, 12), hidden) / plain
    assert np.abs(shares / shares[:, :1] - 1).max() < 1e-2
    assert np.ptp(shares[:, 0]) > 1e-2
    lacking = {name: tensor for name, tensor in chained.tensors.items() if name != CHAIN}
    arrays = {name: values_of(tensor) for name, tensor in lacking.items()}
    broken = open_checkpoint(write_checkpoint(tmp_path / "lacking", chained.config, arrays))
    with pytest.raises(CheckpointError, match=f"tensor '{CHAIN}'"):
        declare_draft(Inkling(), broken, declare(Inkling(), broken)[0])


def test_the_configuration_says_whether_it_has_a_window(tmp_path: Path) -> None:
    """Without one, distance counts 16 positions back, with it 8; so the profile of the other has the wrong size."""
    published = with_head(tmp_path / "published", {"local_layer_ids": [0]})
    own = with_head(tmp_path / "own", mtp_local_layer_ids=[0, 1])
    for checkpoint in (published, own):
        assert 8 in {state.window for state in head_runtime(checkpoint).plan.states}
    for i, full in enumerate(({"local_layer_ids": [1]}, {}, None)):
        checkpoint = with_head(tmp_path / str(i), full)
        with pytest.raises(CheckpointError, match="rel_logits_proj"):
            declare_draft(Inkling(), checkpoint, declare(Inkling(), checkpoint)[0])


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"local_layer_ids": 1}, "mtp_config.local_layer_ids"),
        ({"local_layer_ids": [-1]}, "mtp_config.local_layer_ids"),
        ({"chain_hidden_post_norm": "yes"}, "mtp_config.chain_hidden_post_norm"),
        ({"local_layer_ids": [0], "mtp_hidden_states_first": False}, "mtp_config.mtp_hidden_states_first"),
    ],
)
def test_what_cannot_be_computed_is_refused(config: dict[str, Any], key: str, tmp_path: Path) -> None:
    checkpoint = with_head(tmp_path, config)
    with pytest.raises(CheckpointError, match=key):
        declare_draft(Inkling(), checkpoint, declare(Inkling(), checkpoint)[0])
