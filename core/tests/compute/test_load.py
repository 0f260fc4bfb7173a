from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri.compute.checkpoint import Checkpoint, open_checkpoint
from colibri.compute.load import DEFAULT_CONTEXT, context_for, declare, load_runtime, plan_bytes
from colibri.compute.plan import Plan
from colibri.compute.print import plan_lines
from colibri.compute.runtime import Runtime
from colibri.errors import CheckpointError, PluginError, SettingError
from colibri.testing.broken import write_corpus
from colibri.testing.drive import greedy, logits_of
from colibri.testing.interpreter import InterpretedRuntime

IDS = [7, 95, 0, 12, 12, 3, 60, 41] * 5


def interpreted(toy: Any, checkpoint: Checkpoint) -> Runtime:
    return InterpretedRuntime(*declare(toy, checkpoint), slots=2)


def test_the_native_runtime_computes_every_operation_as_the_interpreter_does(toy, toy_model: Checkpoint) -> None:
    native, plain = load_runtime(toy, toy_model, slots=2), interpreted(toy, toy_model)
    assert (native.context, native.slots, native.vocab, native.max_rows) == (64, 2, 96, 256)
    one, two = logits_of(native, IDS), logits_of(plain, IDS)
    assert np.abs(one - two).max() < 1e-4 * np.abs(two).max()
    assert greedy(native, IDS, 12) == greedy(plain, IDS, 12)
    assert logits_of(native, IDS, slot=1, chunks=[1, 5, 1, 9]).tobytes() == one.tobytes()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "q8_0", "q4_0", "q5_0"])
def test_every_storage_type_is_read_in_place(toy, toy_gguf: Callable[[str], Path], dtype: str) -> None:
    checkpoint = open_checkpoint(toy_gguf(dtype))
    one, two = logits_of(load_runtime(toy, checkpoint), IDS), logits_of(interpreted(toy, checkpoint), IDS)
    errors = np.linalg.norm(one - two, axis=1) / np.linalg.norm(two, axis=1)
    assert np.median(errors) < (1e-4 if dtype in ("f32", "bf16", "f16") else 0.05)


def test_context_policy(toy, toy_model: Checkpoint) -> None:
    plan, _ = declare(toy, toy_model)
    assert context_for(plan, 0) == 64
    assert context_for(plan, 32) == 32
    assert context_for(Plan(1, 100_000, (), (), (), (), (), 0), 0) == DEFAULT_CONTEXT
    with pytest.raises(SettingError, match=r"--ctx 65 is more than this model's limit of 64"):
        load_runtime(toy, toy_model, context=65)
    assert load_runtime(toy, toy_model, context=16).context == 16


def test_sizes(toy, toy_model: Checkpoint) -> None:
    plan, tensors = declare(toy, toy_model)
    sizes = plan_bytes(plan, tensors, context=10, slots=3)
    assert sizes.experts == 5 * 3 * 32 * 64 * 4
    assert sizes.kv == 3 * 10 * (32 + 32) * 4
    assert sizes.weights + sizes.experts == sum(tensor.nbytes for tensor in toy_model.tensors.values())
    assert sizes.total == sizes.weights + sizes.experts + sizes.kv


def test_progress_is_told(toy, toy_model: Checkpoint) -> None:
    told: list[tuple[str, float]] = []
    load_runtime(toy, toy_model, progress=lambda stage, fraction: told.append((stage, fraction)))
    assert told
    assert all(stage and 0 <= fraction <= 1 for stage, fraction in told)


class Failing:
    name = "failing"

    def graph(self, checkpoint: Checkpoint, g: Any) -> None:
        raise IndexError("list index out of range")


def test_a_family_that_fails_is_named(toy_model: Checkpoint) -> None:
    with pytest.raises(PluginError, match="family failing: its graph failed: IndexError: list index out of range"):
        load_runtime(Failing(), toy_model)


def test_a_file_cut_after_it_was_opened(toy, toy_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(toy_folder, tmp_path, dirs_exist_ok=True)
    checkpoint = open_checkpoint(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    for length in (0, 100, len(data) // 2, len(data) - 1):
        (tmp_path / "model.safetensors").write_bytes(data[:length])
        with pytest.raises(CheckpointError) as caught:
            load_runtime(toy, checkpoint)
        assert "model.safetensors" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_cache_that_can_never_fit_is_refused_with_its_size(
    toy, toy_model: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=64 << 10, available=1 << 30))
    assert load_runtime(toy, toy_model, slots=1).context == 64
    with pytest.raises(SettingError, match=r"--ctx 64 with --kv-slots 5 needs .* GiB") as caught:
        load_runtime(toy, toy_model, slots=5)
    assert "lower one of them" in str(caught.value)


def test_no_broken_file_gets_as_far_as_a_runtime(toy, tmp_path: Path) -> None:
    for case in write_corpus(tmp_path):
        with pytest.raises(CheckpointError):
            load_runtime(toy, open_checkpoint(case))


@settings(max_examples=60)
@given(data=st.data(), dtype=st.sampled_from(["f32", "q8_0"]))
def test_a_flipped_file_is_refused_or_runs(
    toy, toy_gguf: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dtype: str
) -> None:
    """Whatever is flipped, header or weights: one line of refusal, or a model that can be stepped."""
    file = tmp_path_factory.getbasetemp() / "flipped.gguf"
    raw = bytearray(toy_gguf(dtype).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.one_of(st.integers(0, 2500), st.integers(0, len(raw) - 1)))
        raw[place] ^= 1 << data.draw(st.integers(0, 7))
    file.unlink(missing_ok=True)  # a file that is mapped is never changed in place
    file.write_bytes(raw)
    reason = ""
    try:
        runtime = load_runtime(toy, open_checkpoint(file))
    except (CheckpointError, SettingError) as error:
        reason = str(error)
    else:
        assert logits_of(runtime, IDS).shape == (40, 96)
    assert "\n" not in reason


def test_a_plan_can_be_read(toy, toy_model: Checkpoint) -> None:
    plan, tensors = declare(toy, toy_model)
    lines = list(plan_lines(plan, tensors))
    assert lines[0] == f"plan {plan.hash()}: vocabulary 96, context 64, {len(plan.nodes)} operations"
    assert lines[1] == "states 0 to 0: rows of 64 values a position each, the last 20"
    assert "%0 [64] = embed  embed.weight [96, 64] f32" in lines
    assert any("layer.experts 5 x [32, 64] f32" in line for line in lines)
    assert lines[-1] == f"logits %{plan.logits}"
    assert len(lines) == 3 + len(plan.nodes)
