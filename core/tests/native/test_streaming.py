"""Experts that are read as they are needed: what is read, what is kept, and what happens when a disk fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from colibri.compute.checkpoint import Tensor
from colibri.compute.experts import Experts, Streaming
from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Plan
from colibri.compute.runtime import Row
from colibri.errors import EngineError, SettingError

from .plans import Draft, run

COUNT, TOP_K, LAYERS = 9, 2, 2
TOKENS = [3, 7, 1, 30, 22, 5, 5, 18, 2, 39, 11, 4]

Model = tuple[Plan, dict[str, Tensor]]


def build(folder: Path, gap: int = 0, dtype: str = "q8_0") -> Model:
    draft = Draft(seed=4, gap=gap)
    x = draft.embed(64)
    for _ in range(LAYERS):
        x = draft.mixture(draft.norm(x), experts=COUNT, top_k=TOP_K, inner=96, dtype=dtype)
    return draft.plan(x), draft.tensors(folder)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """Experts lie in a file of their own."""
    plan, tensors = build(tmp_path)
    file = tmp_path / "experts"
    data = bytearray()
    for bank in plan.banks:
        for index in (*bank.gate, *bank.up, *bank.down):
            name = plan.weights[index].name
            tensor = tensors[name]
            begin = tensor.offset
            tensors[name] = replace(tensor, file=file, offset=len(data))
            data += tensor.file.read_bytes()[begin : begin + tensor.nbytes]
    file.write_bytes(data)
    return plan, tensors


def streamed(model: Model, room: int = COUNT * LAYERS, **how: object) -> tuple[NativeRuntime, Experts]:
    """With room for so many experts in all."""
    runtime = NativeRuntime.load(*model, max_rows=len(TOKENS), streaming=Streaming(**how))  # type: ignore[arg-type]
    assert runtime.experts is not None
    runtime.experts.limit(room * (runtime.experts.least // (LAYERS * TOP_K)))
    return runtime, runtime.experts


def file_of(model: Model) -> Path:
    """That of the experts."""
    plan, tensors = model
    return tensors[plan.weights[plan.banks[0].gate[0]].name].file


@pytest.mark.parametrize("gap", [0, 2, 70_000])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q4_k_", "q8_0"])
def test_the_same_bytes_wherever_experts_lie(tmp_path: Path, gap: int, dtype: str) -> None:
    model = build(tmp_path, gap, dtype if dtype != "q4_k_" else "q4_0")
    expected = run(NativeRuntime.load(*model), TOKENS, chunk=1)
    for room in (LAYERS * TOP_K, LAYERS * TOP_K + 3, COUNT * LAYERS):
        for chunk in (1, 5, len(TOKENS)):
            runtime, _ = streamed(model, room)
            assert run(runtime, TOKENS, chunk=chunk) == expected


def test_what_is_in_memory_is_not_read_again(model: Model) -> None:
    runtime, experts = streamed(model)
    run(runtime, TOKENS, chunk=len(TOKENS))
    first = experts.facts()
    assert first.hit_rate == 0
    used = sum(sum(1 for uses in experts.uses(bank) if uses) for bank in range(LAYERS))
    assert sum(bank.misses for bank in first.banks) == used == sum(bank.held for bank in first.banks)
    run(runtime, TOKENS, chunk=len(TOKENS))
    again = experts.facts()
    assert again.bytes_read == first.bytes_read
    assert sum(bank.hits for bank in again.banks) == used
    assert sum(sum(experts.uses(bank)) for bank in range(LAYERS)) == 2 * len(TOKENS) * TOP_K * LAYERS


def test_one_read_serves_all_rows_of_a_step(model: Model) -> None:
    runtime, experts = streamed(model, LAYERS * TOP_K)
    rows = [Row(9, 0, i, logits=True) for i in range(len(TOKENS))]
    runtime.step(rows)
    assert next(bank.misses for bank in experts.facts().banks) == TOP_K


def test_what_is_used_often_stays(model: Model) -> None:
    """With room for four, the two experts of a token that comes every second time are never read again."""
    runtime, experts = streamed(model, 4 * LAYERS)
    runtime.step([Row(9, 0, 0, logits=True)])
    favourites = set(experts.held(0))
    others = [token for token in range(40) if token != 9]
    position = 1
    for token in others:
        for each in (token, 9):
            runtime.step([Row(each, 0, position % 60, logits=True)]) if position < 60 else None
            position += 1
    assert favourites <= set(experts.held(0))


def test_pinned_experts_are_never_given_up(model: Model) -> None:
    runtime, experts = streamed(model, 4 * LAYERS)
    for bank in experts.streamed:
        experts.pin(bank, [7, 8])
        experts.preload(bank, [7, 8])
    run(runtime, TOKENS, chunk=3)
    assert all({7, 8} <= set(experts.held(bank)) for bank in experts.streamed)


def test_preloading_fills_free_room_only(model: Model) -> None:
    runtime, experts = streamed(model, 3 * LAYERS)
    experts.preload(0, range(COUNT))
    assert experts.held(0) == [0, 1, 2]
    assert run(runtime, TOKENS, chunk=1) == run(NativeRuntime.load(*model), TOKENS, chunk=1)


def test_the_budget_can_be_changed(model: Model) -> None:
    expected = run(NativeRuntime.load(*model), TOKENS, chunk=2)
    runtime, experts = streamed(model)
    whole = experts.facts().bytes
    for budget in (whole, experts.least, whole // 2, 2 * whole):
        experts.limit(budget)
        assert experts.facts().bytes <= min(whole, budget)
        assert run(runtime, TOKENS, chunk=2) == expected
    with pytest.raises(ValueError, match=f"one token takes {experts.least} bytes"):
        experts.limit(experts.least - 1)
    assert run(runtime, TOKENS, chunk=2) == expected


def test_no_step_before_there_is_memory(model: Model) -> None:
    runtime = NativeRuntime.load(*model, streaming=Streaming())
    with pytest.raises(ValueError, match="limit_experts"):
        runtime.step([Row(1, 0, 0, logits=True)])


# Faults


def test_a_file_that_is_cut_short_is_named_and_nothing_wrong_comes_out(model: Model) -> None:
    expected = run(NativeRuntime.load(*model), TOKENS, chunk=1)
    runtime, _ = streamed(model, LAYERS * TOP_K)
    whole = file_of(model).read_bytes()
    os.truncate(file_of(model), len(whole) // 3)
    with pytest.raises(EngineError, match=rf"{file_of(model).name}: was (cut short|changed)"):
        run(runtime, TOKENS, chunk=1)
    with file_of(model).open("r+b") as stream:
        stream.write(whole)
    # It is whole again, but nobody can say that it is the same.
    with pytest.raises(EngineError, match=r"was (cut short|changed)"):
        run(runtime, TOKENS, chunk=1)
    assert run(streamed(model)[0], TOKENS, chunk=1) == expected


def test_a_file_that_is_replaced_goes_on_as_it_was(model: Model, tmp_path: Path) -> None:
    expected = run(NativeRuntime.load(*model), TOKENS, chunk=1)
    runtime, _ = streamed(model, LAYERS * TOP_K)
    other = tmp_path / "other"
    other.write_bytes(bytes(file_of(model).stat().st_size))
    other.replace(file_of(model))
    assert run(runtime, TOKENS, chunk=1) == expected


def test_a_mirror_serves_alone_while_the_first_copy_fails(model: Model, tmp_path: Path) -> None:
    expected = run(NativeRuntime.load(*model), TOKENS, chunk=1)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    shutil.copy(file_of(model), mirror)
    runtime, _ = streamed(model, LAYERS * TOP_K, mirror=mirror)
    assert run(runtime, TOKENS, chunk=1) == expected
    os.utime(file_of(model), (1, 1))  # as if it had been written to
    runtime.rewind(0, 0)
    assert run(runtime, TOKENS, chunk=1) == expected
    os.utime(mirror / file_of(model).name, (1, 1))
    with pytest.raises(EngineError, match="was changed"):
        run(runtime, TOKENS, chunk=1)


def test_a_mirror_of_something_else_is_refused(model: Model, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    with pytest.raises(SettingError, match=r"--mirror .*: holds none of the model's files"):
        streamed(model, mirror=tmp_path / "mirror")
    copy = tmp_path / "mirror" / file_of(model).name
    data = bytearray(file_of(model).read_bytes())
    data[len(data) // 64 * 32 + 5] ^= 1
    copy.write_bytes(data)
    with pytest.raises(ValueError, match="is no copy of"):
        streamed(model, mirror=copy)
    copy.write_bytes(data[:-1])
    with pytest.raises(ValueError, match="is no copy of"):
        streamed(model, mirror=copy)
