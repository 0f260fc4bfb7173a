"""The same bytes alone or batched, in any slot, with any chunking, any number of threads, on every code path, and wherever
experts are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.compute.checkpoint import Tensor
from colibri.compute.experts import Streaming
from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Plan
from colibri.compute.runtime import Row
from colibri.family import Sampling

from .plans import Draft, run

ROPE = {"inv_freq": tuple(0.4**i for i in range(8)), "offset": 0, "factor": 1.0, "interleaved": False}
SLOTS, ROWS, VOCAB = 3, 40, 61

Model = tuple[Plan, dict[str, Tensor]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Two layers of mixed storage types, the first with a window, the second with experts; wide enough that threads share
    every op."""
    draft = Draft(vocab=VOCAB, context=600, seed=7)
    x = draft.embed(256, "q6_k")
    x = draft.attend(draft.norm(x), heads=16, kv_heads=2, dim=16, rope=ROPE, window=9, dtype="q4_k")
    h = draft.norm(x)
    gate, up = draft.linear(h, 512, dtype="q5_0"), draft.linear(h, 512, dtype="q4_0")
    x = draft.node("add", [x, draft.linear(draft.node("glu", [gate, up], 512), 256, dtype="q4_k")], 256)
    x = draft.attend(draft.norm(x, group=64), heads=6, kv_heads=3, dim=16, rope=ROPE, dtype="bf16")
    x = draft.mixture(draft.norm(x), experts=7, top_k=3, inner=96, dtype="q8_0", down="f16")
    plan = draft.plan(draft.norm(x), "q8_0")
    return plan, draft.tensors(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def runtimes(model: Model) -> list[NativeRuntime]:
    """The first is the one to agree with."""
    kinds = [("scalar", 1), *((isa, threads) for isa in _native.isas() for threads in (2, 3))]
    loaded = [NativeRuntime.load(*model, slots=SLOTS, max_rows=ROWS, threads=threads, isa=isa) for isa, threads in kinds]
    streamed = NativeRuntime.load(*model, slots=SLOTS, max_rows=ROWS, threads=2, streaming=Streaming(readers=3))
    assert streamed.experts is not None
    streamed.experts.limit(4 * streamed.experts.least)
    return [*loaded, *[streamed] * len(loaded)]


@pytest.fixture(scope="module")
def expected(runtimes: list[NativeRuntime]) -> dict[tuple[int, ...], list[bytes]]:
    return {}


def alone(runtimes: list[NativeRuntime], known: dict[tuple[int, ...], list[bytes]], tokens: Sequence[int]) -> list[bytes]:
    """The logits of every position, one row at a time on the scalar path by one thread."""
    key = tuple(tokens)
    if key not in known:
        known[key] = run(runtimes[0], tokens, chunk=1)
    return known[key]


tokens = st.integers(0, VOCAB - 1)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_company_gives_the_same_bytes(
    runtimes: list[NativeRuntime], expected: dict[tuple[int, ...], list[bytes]], data: st.DataObject
) -> None:
    """Sequences advance in the slots by chunks of any size, side by side and interleaved."""
    sequences = data.draw(st.lists(st.lists(tokens, min_size=1, max_size=24), min_size=1, max_size=SLOTS))
    slots = data.draw(st.permutations(range(SLOTS)))
    runtime = data.draw(st.sampled_from(runtimes[1:]))
    delays = [data.draw(st.integers(0, 3)) for _ in sequences]
    chunks = [data.draw(st.integers(0, 12).map(lambda less: 13 - less)) for _ in sequences]
    random = data.draw(st.randoms(use_true_random=False))
    done = [0] * len(sequences)
    if (experts := runtime.experts) is not None:
        experts.limit(data.draw(st.integers(experts.least, 3 * experts.least)))
    for step in range(3 + 24):
        turns: list[int] = []
        for i, sequence in enumerate(sequences):
            turns += [i] * (min(chunks[i], len(sequence) - done[i]) if step >= delays[i] else 0)
        random.shuffle(turns)
        if not turns:
            continue
        rows = []
        for i in turns:
            rows.append(Row(sequences[i][done[i]], slots[i], done[i], logits=True))
            done[i] += 1
        runtime.step(rows)
        for index, (i, row) in enumerate(zip(turns, rows, strict=True)):
            assert bytes(runtime.logits(index)) == alone(runtimes, expected, sequences[i])[row.position]


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_rows_without_logits_change_nothing(
    runtimes: list[NativeRuntime], expected: dict[tuple[int, ...], list[bytes]], data: st.DataObject
) -> None:
    """The last layers are skipped for rows whose logits nobody wants; what they leave in the slot must be the same."""
    sequence = data.draw(st.lists(tokens, min_size=2, max_size=30))
    wanted = data.draw(st.sets(st.integers(0, len(sequence) - 1)))
    chunk, runtime = data.draw(st.integers(1, 30)), data.draw(st.sampled_from(runtimes[1:]))
    for start in range(0, len(sequence), chunk):
        part = range(start, min(start + chunk, len(sequence)))
        runtime.step([Row(sequence[at], 1, at, logits=at in wanted) for at in part])
        for index, at in enumerate(at for at in part if at in wanted):
            assert bytes(runtime.logits(index)) == alone(runtimes, expected, sequence)[at]


def test_many_rows_across_tiles(runtimes: list[NativeRuntime]) -> None:
    """Past the first tile of positions, where every thread has several blocks of rows."""
    sequence = [(i * i + 3 * i) % VOCAB for i in range(560)]
    one_by_one = run(runtimes[0], sequence, chunk=1)
    for runtime in runtimes[1:]:
        assert run(runtime, sequence, chunk=ROWS) == one_by_one


def test_a_copied_prefix_is_as_good_as_a_computed_one(runtimes: list[NativeRuntime]) -> None:
    sequence = [(7 * i) % VOCAB for i in range(20)]
    for runtime in runtimes[:2]:
        whole = run(runtime, sequence, chunk=20, slot=0)
        run(runtime, [5] * 30, chunk=30, slot=2)
        runtime.copy(0, 2, 12)
        assert run(runtime, sequence[12:], chunk=3, slot=2, start=12) == whole[12:]
        assert run(runtime, sequence[12:], chunk=8, slot=0, start=12) == whole[12:]


def test_a_step_may_go_back(runtimes: list[NativeRuntime]) -> None:
    """A row at an earlier position forgets what stood there and after it."""
    sequence = [(5 * i + 2) % VOCAB for i in range(20)]
    runtime = runtimes[1]
    whole = run(runtime, sequence, chunk=20)
    run(runtime, [1] * 6, chunk=6, start=9)
    assert run(runtime, sequence[9:], chunk=4, start=9) == whole[9:]
    with pytest.raises(ValueError, match="leaves a hole"):
        run(runtime, [1], chunk=1, start=21)


def test_sampled_tokens_do_not_depend_on_company(runtimes: list[NativeRuntime]) -> None:
    sampling = Sampling(temperature=1.2, top_p=0.9, top_k=30, min_p=0.01, seed=11)
    prompt = [4, 8, 15, 16, 23, 42]

    def generate(runtime: NativeRuntime, slot: int, beside: Sequence[Row]) -> list[int]:
        rows = [Row(token, slot, i) for i, token in enumerate(prompt[:-1])]
        rows.append(Row(prompt[-1], slot, len(prompt) - 1, sampling, 0))
        found = [runtime.step([*beside, *rows])[-1]]
        for i in range(1, 8):
            found.append(runtime.step([Row(found[-1], slot, len(prompt) - 1 + i, sampling, i), *beside])[0])
        return found

    alone = generate(runtimes[0], 0, [])
    for runtime in runtimes:
        for slot in range(SLOTS):
            beside = [Row(9, (slot + 1) % SLOTS, 0, Sampling(temperature=3.0, seed=1), 0)]
            assert generate(runtime, slot, beside) == alone
