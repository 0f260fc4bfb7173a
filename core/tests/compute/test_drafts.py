"""Draft heads: what a family may declare, and what is loaded of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from colibri.compute.budget import PROCESS
from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.graph import Graph
from colibri.compute.load import declare, declare_draft, load_runtime
from colibri.compute.runtime import Row
from colibri.errors import CheckpointError, PluginError, SettingError
from colibri.testing.checkpoints import seeded_weights, write_checkpoint

VOCAB, WIDTH = 24, 8
SHAPES = {"embed": (VOCAB, WIDTH), "last": (WIDTH,), "head": (VOCAB, WIDTH), "draft.joint": (WIDTH, 2 * WIDTH)}


class Drafting:
    """A family whose draft head adds attention to what it is given. `width` is what that should be."""

    name = "drafting"

    def __init__(self, width: int = WIDTH) -> None:
        self.width = width

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        g.context(16)
        x = g.hidden(g.rms_norm(g.embed(g.tokens, g.w("embed")), g.w("last"), 1e-5))
        g.logits(g.linear(x, g.w("head")))

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        if not checkpoint.has("draft."):
            return False
        g.context(16)
        x = g.linear(g.concat(g.embed(g.tokens, g.w("embed")), g.given(self.width)), g.w("draft.joint"))
        g.logits(g.linear(x + g.attention(x, x, x, state=g.kv(0, 1, WIDTH)), g.w("head")))
        return True


@pytest.fixture
def model(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(write_checkpoint(tmp_path / "model", {"model_type": "drafting"}, seeded_weights(SHAPES, 3)))


@pytest.fixture
def headless(tmp_path: Path) -> Checkpoint:
    shapes = {name: shape for name, shape in SHAPES.items() if not name.startswith("draft.")}
    return open_checkpoint(write_checkpoint(tmp_path / "headless", {"model_type": "drafting"}, seeded_weights(shapes, 3)))


def test_a_head_goes_on_from_the_hidden_row_of_the_position_before_its_token(model: Checkpoint) -> None:
    runtime = load_runtime(Drafting(), model, drafts=True)
    draft = runtime.draft
    assert draft is not None
    assert (runtime.given, draft.given, draft.vocab, draft.context) == (0, WIDTH, VOCAB, runtime.context)
    weights = {name: values.astype(np.float64) for name, values in seeded_weights(SHAPES, 3).items()}
    x = weights["embed"][[3, 5]]
    x = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * weights["last"]
    runtime.step([Row(3, 0, 0), Row(5, 0, 1)])  # nobody asked for logits
    hidden = [runtime.hidden(0), runtime.hidden(1)]
    assert np.allclose(np.array(hidden), x, atol=1e-6)
    draft.step([Row(5, 0, 0, given=hidden[0].tobytes()), Row(7, 0, 1, logits=True, given=hidden[1].tobytes())])
    y = np.hstack([weights["embed"][[5, 7]], x]) @ weights["draft.joint"].T
    scores = np.exp(y[1] @ y.T / WIDTH**0.5)
    expected = (y[1] + scores / scores.sum() @ y) @ weights["head"].T
    assert np.allclose(np.array(draft.logits(0)), expected, atol=1e-4)


def test_a_head_is_loaded_only_where_there_is_one_and_it_is_asked_for(model: Checkpoint, headless: Checkpoint) -> None:
    assert load_runtime(Drafting(), model).draft is None
    assert load_runtime(Drafting(), headless, drafts=True).draft is None
    plain = SimpleNamespace(name="plain", graph=Drafting().graph)
    assert load_runtime(plain, model, drafts=True).draft is None  # type: ignore[arg-type]


def test_hidden_rows_are_kept_only_for_a_head(model: Checkpoint) -> None:
    runtime = load_runtime(Drafting(), model)
    runtime.step([Row(3, 0, 0, logits=True)])
    with pytest.raises(ValueError, match="no hidden rows are kept"):
        runtime.hidden(0)


def test_a_head_that_is_broken_or_does_not_fit_is_left_out_where_nobody_insists(
    model: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_runtime(Drafting(), model, drafts=None).draft is not None
    assert not caplog.text
    assert load_runtime(Drafting(WIDTH + 1), model, drafts=None).draft is None
    assert "the draft head is left out: " in caplog.text
    assert "tensor 'draft.joint'" in caplog.text
    caplog.clear()
    whole = sum(tensor.nbytes for tensor in model.tensors.values()) + PROCESS
    assert load_runtime(Drafting(), model, drafts=None, ram=whole + (1 << 20)).draft is not None
    assert load_runtime(Drafting(), model, drafts=None, ram=whole - 1).draft is None
    assert "the draft head is left out: it takes" in caplog.text
    assert load_runtime(Drafting(), model, drafts=True).draft is not None


def test_a_head_that_names_a_hidden_row_can_go_on_from_it(model: Checkpoint) -> None:
    class Chained(Drafting):
        def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
            g.context(16)
            x = g.linear(g.concat(g.embed(g.tokens, g.w("embed")), g.given(WIDTH)), g.w("draft.joint"))
            g.logits(g.linear(g.hidden(x), g.w("head")))
            return True

    for family, gives in ((Drafting(), 0), (Chained(), WIDTH)):
        runtime = load_runtime(family, model, drafts=True)
        assert runtime.draft is not None
        assert (runtime.gives, runtime.draft.gives) == (WIDTH, gives)
    assert load_runtime(Drafting(), model).gives == 0


def _refused(family: Any, checkpoint: Checkpoint, error: type[Exception]) -> str:
    plan, _ = declare(Drafting(), checkpoint)
    with pytest.raises(error) as caught:
        declare_draft(family, checkpoint, plan)
    return str(caught.value)


def test_a_head_that_does_not_go_with_its_model_is_the_plugins_fault(model: Checkpoint) -> None:
    class Unsaid(Drafting):
        def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
            g.context(16)
            g.logits(g.linear(g.embed(g.tokens, g.w("embed")), g.w("head")))

    class Independent(Drafting):
        def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
            self.graph(checkpoint, g)
            return True

    class Failing(Drafting):
        def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
            raise KeyError("joint")

    class Unfinished(Drafting):
        def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
            return True

    with pytest.raises(PluginError, match="takes 8 numbers a row for 24 tokens, its graph has 0 for 24"):
        load_runtime(Unsaid(), model, drafts=True)
    assert "takes 0 numbers a row for 24 tokens, its graph has 8" in _refused(Independent(), model, PluginError)
    assert "family drafting: its draft head failed: KeyError: 'joint'" in _refused(Failing(), model, PluginError)
    assert "ends in logits" in _refused(Unfinished(), model, PluginError)


def test_weights_that_do_not_fit_the_hidden_row_are_the_files_fault(model: Checkpoint) -> None:
    assert "tensor 'draft.joint': linear: takes 16 values a row, it is given 17" in _refused(
        Drafting(WIDTH + 1), model, CheckpointError
    )


def test_the_heads_cache_counts(model: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    # 16 positions of 8 keys and 8 values, 2 slots: the model itself keeps nothing.
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=2000, available=1 << 30))
    assert load_runtime(Drafting(), model, slots=2).slots == 2
    with pytest.raises(SettingError, match="--kv-slots 2 needs"):
        load_runtime(Drafting(), model, slots=2, drafts=True)
