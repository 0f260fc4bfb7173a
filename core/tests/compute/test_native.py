"""The native runtime's Python side: what it refuses and how it says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from colibri import _native
from colibri.compute.checkpoint import Tensor
from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Node, Plan
from colibri.compute.runtime import Row, Runtime
from colibri.errors import CheckpointError, EngineError, SettingError
from colibri.family import Sampling
from colibri.testing.storage import dequantise, quantise

from ..native.plans import Draft, floats, run

Model = tuple[Plan, dict[str, Tensor]]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    draft = Draft(vocab=16, context=32)
    x = draft.attend(draft.norm(draft.embed(8)), heads=2, kv_heads=1, dim=4)
    x = draft.mixture(x, experts=3, top_k=1, inner=8)
    plan = draft.plan(x)
    return plan, draft.tensors(tmp_path)


def test_it_is_a_runtime(model: Model) -> None:
    runtime: Runtime = NativeRuntime.load(*model, slots=3, context=20, max_rows=7, threads=2, isa="scalar")
    assert (runtime.slots, runtime.context, runtime.vocab, runtime.max_rows) == (3, 20, 16, 7)
    assert runtime.describe().startswith("2 threads, scalar, ")
    assert NativeRuntime.load(*model).context == 32
    assert NativeRuntime.load(*model, threads=1).describe().startswith("1 thread, " + _native.isas()[-1])


def test_a_token_for_each_row_with_sampling(model: Model) -> None:
    """Rows that only want logits get none, and both count for `logits`."""
    runtime = NativeRuntime.load(*model, slots=2)
    rows = [
        Row(1, 0, 0, Sampling()),
        Row(2, 0, 1),
        Row(3, 0, 2, logits=True),
        Row(4, 1, 0, Sampling(temperature=1.0, seed=5), draw=3, logits=True),
    ]
    tokens = runtime.step(rows)
    found = [np.asarray(runtime.logits(i)) for i in range(3)]
    assert all(row.dtype == np.float32 and row.shape == (16,) for row in found)
    assert tokens == [int(found[0].argmax()), _native.Sampler(1.0, 1.0, 0, 0.0, 5).pick(found[2], 3)]
    with pytest.raises(ValueError, match="had 3 wanted rows"):
        runtime.logits(3)
    assert runtime.step([Row(5, 1, 1)]) == []


def test_no_seed_is_a_new_draw_every_time(model: Model) -> None:
    runtime = NativeRuntime.load(*model)
    sampling = Sampling(temperature=50.0)
    assert len({runtime.step([Row(1, 0, 0, sampling)])[0] for _ in range(60)}) > 5


def test_seeds_of_any_size(model: Model) -> None:
    runtime = NativeRuntime.load(*model)
    for seed in (-1, 2**63, -(2**70), 2**64 - 1):
        sampling = Sampling(temperature=9.0, seed=seed)
        assert runtime.step([Row(1, 0, 0, sampling)]) == runtime.step([Row(1, 0, 0, sampling)])


def test_progress_ends_at_one(model: Model) -> None:
    heard: list[tuple[str, float]] = []
    NativeRuntime.load(*model, progress=lambda stage, fraction: heard.append((stage, fraction)))
    assert heard[0] == ("mapping weights", 0.0)
    assert heard[-1] == ("reading weights", 1.0)
    assert [fraction for _, fraction in heard] == sorted(fraction for _, fraction in heard)


def test_a_model_beyond_memory_is_not_read_ahead(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    monkeypatch.setattr("colibri.compute.native.available", lambda: 0)
    NativeRuntime.load(*model, progress=lambda stage, fraction: heard.append(stage))
    assert heard[-1] == "weights exceed free memory: reading them as they are used"


def test_settings_are_named(model: Model) -> None:
    with pytest.raises(SettingError, match="--isa sse9: this CPU has scalar"):
        NativeRuntime.load(*model, isa="sse9")
    for threads in (-1, 5000):
        with pytest.raises(SettingError, match="--threads"):
            NativeRuntime.load(*model, threads=threads)


def test_slots_beyond_the_address_space(tmp_path: Path) -> None:
    draft = Draft(vocab=16)
    plan = draft.plan(draft.attend(draft.embed(8), heads=2, kv_heads=2, dim=64))
    with pytest.raises(MemoryError, match="lower ctx or kv_slots"):
        NativeRuntime.load(plan, draft.tensors(tmp_path), slots=4096, context=1 << 28)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"file": Path("/nonexistent/model.bin")}, "/nonexistent/model.bin: No such file"),
        ({"file": Path("/tmp")}, "/tmp: not a regular file"),
        ({"offset": 1 << 40}, "tensor 'w1'.* the file has "),
        ({"offset": 1 << 90}, "tensor 'w1': its shape or offset is out of range"),
        ({"offset": -8}, "tensor 'w1'.* the file has "),
        ({"dtype": "iq2_xxs"}, "tensor 'w1'.*unknown storage type 'iq2_xxs'"),
        ({"dtype": "q4_0"}, "tensor 'w1'.*8 columns are no whole number of q4_0 blocks"),
        ({"shape": (9,)}, r"tensor 'w1': has shape \[9\], \[8\] is needed"),
    ],
)
def test_files_that_lie(model: Model, change: dict[str, Any], reason: str) -> None:
    plan, tensors = model
    tensors["w1"] = msgspec.structs.replace(tensors["w1"], **change)
    with pytest.raises(CheckpointError, match=reason) as raised:
        NativeRuntime.load(plan, tensors)
    assert "\n" not in raised.value.message


def test_a_file_cut_short_after_it_was_opened(model: Model) -> None:
    plan, tensors = model
    file = tensors["w1"].file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"weights\.bin: tensor 'w\d+': .* the file has \d+"):
        NativeRuntime.load(plan, tensors)


def _change(**fields: Any) -> Callable[[Node], Node]:
    return lambda node: msgspec.structs.replace(node, **fields)


@pytest.mark.parametrize(
    ("op", "change", "reason"),
    [
        ("linear", _change(op="telepathy"), "unknown operation"),
        ("linear", _change(inputs=(77,)), "no value 77"),
        ("linear", _change(weights=(0,)), "it must be"),
        ("linear", _change(attrs={"colour": 1}), "unknown attribute 'colour'"),
        ("linear", _change(attrs={"colour": (1.0,)}), "unknown attribute 'colour'"),
        ("linear", _change(attrs={"colour": (1, 2)}), "unknown attribute 'colour'"),
        ("linear", _change(attrs={"score": "sigmoid"}), "unknown attribute 'score'"),
        ("route", _change(attrs={"top_k": 1, "score": "charm"}), "score 'charm' is unknown"),
        ("rms_norm", _change(attrs={}), "eps is missing"),
        ("attention", _change(states=(9,)), "no state 9"),
    ],
)
def test_plans_that_contradict_themselves(model: Model, op: str, change: Callable[[Node], Node], reason: str) -> None:
    plan, tensors = model
    index = next(i for i, node in enumerate(plan.nodes) if node.op == op)
    nodes = [*plan.nodes[:index], change(plan.nodes[index]), *plan.nodes[index + 1 :]]
    with pytest.raises(ValueError, match=reason):
        NativeRuntime.load(msgspec.structs.replace(plan, nodes=tuple(nodes)), tensors)


def test_rows_that_break_the_contract_change_nothing(model: Model) -> None:
    runtime = NativeRuntime.load(*model, slots=2, max_rows=4)
    tokens = [1, 2, 3, 4]
    before = run(runtime, tokens, chunk=4)
    for rows in (
        [],
        [Row(1, 0, i) for i in range(5)],
        [Row(16, 0, 0)],
        [Row(-1, 0, 0)],
        [Row(1, 2, 0)],
        [Row(1, 1, 1)],
        [Row(1, 0, 32)],
        [Row(1, 0, 0), Row(1, 0, 2)],
    ):
        with pytest.raises(ValueError, match=r"row|step"):
            runtime.step(rows)
    for arguments in ((0, 2, 1), (2, 0, 0), (0, 1, 5), (0, 1, -1)):
        with pytest.raises(ValueError, match=r"slot|length"):
            runtime.copy(*arguments)
    assert run(runtime, tokens[3:], chunk=1, start=3) == before[3:]


def test_logits_that_are_not_numbers(tmp_path: Path) -> None:
    """A request whose model breaks down gets an error that says where, not a made-up token."""
    draft = Draft(vocab=4)
    plan = draft.plan(draft.embed(4))
    tensors = draft.tensors(tmp_path)
    with tensors["w0"].file.open("r+b") as stream:
        stream.write(np.full(4, np.nan, np.float32).tobytes())  # the embedding of token 0
    runtime = NativeRuntime.load(plan, tensors, slots=2)
    assert runtime.step([Row(1, 0, 0, Sampling())])[0] in range(4)
    with pytest.raises(EngineError, match="slot 1, position 0"):
        runtime.step([Row(1, 0, 0, Sampling()), Row(0, 1, 0, Sampling())])
    assert np.isnan(floats([bytes(runtime.logits(1))])).all()


def test_one_step_at_a_time(tmp_path: Path) -> None:
    """A step lets other Python threads run; one that steps the same runtime is turned away."""
    draft = Draft(vocab=64, context=2048)
    plan = draft.plan(draft.attend(draft.embed(64), heads=4, kv_heads=4, dim=8))
    runtime = NativeRuntime.load(plan, draft.tensors(tmp_path), max_rows=2048)
    turned_away: list[str] = []
    done = threading.Event()

    def intrude() -> None:
        while not done.is_set():
            try:
                runtime.copy(0, 0, 0)
            except RuntimeError as error:
                turned_away.append(str(error))
                return

    intruder = threading.Thread(target=intrude)
    intruder.start()
    for _ in range(1000):  # a step may be over before the other thread gets to run
        runtime.step([Row(i % 64, 0, i) for i in range(2048)])
        if turned_away:
            break
    done.set()
    intruder.join()
    assert turned_away == ["the runtime is busy: another thread is in a step"]


def test_sampler_and_builder_refuse_by_name() -> None:
    for arguments, name in (
        ((-1.0, 1.0, 0, 0.0, 0), "temperature"),
        ((1.0, 1.1, 0, 0.0, 0), "top_p"),
        ((1.0, 1.0, -1, 0.0, 0), "top_k"),
        ((1.0, 1.0, 0, -0.1, 0), "min_p"),
    ):
        with pytest.raises(ValueError, match=name):
            _native.Sampler(*arguments)
    with pytest.raises(ValueError, match="all are NaN or -inf"):
        _native.Sampler(0.0, 1.0, 0, 0.0, 0).pick(np.full(3, np.nan, np.float32), 0)
    with pytest.raises(ValueError, match="vocab"):
        _native.Builder(0)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "q8_0", "q4_0", "q5_0", "q4_k", "q6_k"])
def test_dequantize(dtype: str) -> None:
    values = np.random.default_rng(1).standard_normal(512).astype(np.float32)
    data = quantise(dtype, values)
    found = np.frombuffer(_native.dequantize(dtype, data, 512), np.float32)
    np.testing.assert_allclose(found, dequantise(dtype, data, (512,)), rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="take"):
        _native.dequantize(dtype, data[:-1], 512)


def test_dequantize_refuses() -> None:
    with pytest.raises(ValueError, match="unknown storage type"):
        _native.dequantize("q1", b"", 0)
    for count in (-256, 255, 1 << 60):
        with pytest.raises(ValueError, match="256"):
            _native.dequantize("q4_k", b"", count)
    assert _native.dequantize("f32", b"", 0) == b""


def test_build_info_is_one_line() -> None:
    info = _native.build_info()
    assert "\n" not in info
    assert all(isa in info for isa in _native.isas())
    assert _native.isas()[0] == "scalar"
