"""What is computed after a slot was taken back or copied is what a fresh computation gives, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri.compute.checkpoint import Tensor
from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Plan
from colibri.compute.runtime import Row

from .plans import Draft, run

SLOTS, ROWS, CONTEXT, VOCAB = 3, 6, 150, 13
ROPE = {"inv_freq": (1.0, 0.3), "offset": 0, "factor": 1.0, "interleaved": False}

Model = tuple[Plan, dict[str, Tensor]]


def _conv(d: Draft, x: int, kernel: int = 3, dilation: int = 2) -> int:
    width = d.widths[x]
    states = [d.state(width, window=(kernel - 1) * dilation + 1)]
    attrs = {"kernel": kernel, "dilation": dilation, "lags": False}
    return d.node("conv", [x], width, [d.weight(width, kernel)], states=states, **attrs)


def _delta(d: Draft, x: int) -> int:
    width, heads = d.widths[x], 2
    q, k, v = (d.linear(x, width) for _ in range(3))
    decay = d.node(
        "decay", [d.linear(x, heads)], heads, [d.weight(heads), d.weight(heads)], heads=heads, bound=0.0, log=True
    )
    states = [d.state(width * width // heads, recurrent=True)]
    inputs = [q, k, v, decay, d.linear(x, heads)]
    return d.node("delta", inputs, width, states=states, heads=heads, key_heads=heads)


def _attend(d: Draft, x: int, window: int = 0) -> int:
    return d.attend(x, heads=2, kv_heads=2, dim=4, rope=ROPE, window=window)


def _ngram(d: Draft, x: int) -> int:
    how = {"heads": 1, "eos": 0, "multipliers": (5, 3, 7), "sizes": (20, 20), "offsets": (0, 20)}
    width = d.widths[x]
    return d.node("ngram", [], width, [d.weight(40, width // 2)], states=[d.state(1, window=3)], **how)


LAYERS: dict[str, Callable[[Draft, int], int]] = {
    "conv": _conv,
    "delta": _delta,
    "attention": _attend,
    "window": lambda d, x: _attend(d, x, window=5),
    "ngram": _ngram,
}

# Slots that can be cut anywhere, a little, and not at all.
PLANS = {
    "rows": ["attention", "attention"],
    "windows": ["window", "conv", "ngram", "attention"],
    "memories": ["delta"],
    "all": ["conv", "delta", "window", "attention", "ngram", "delta", "conv"],
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    made = {}
    for name, layers in PLANS.items():
        d = Draft(vocab=VOCAB, context=CONTEXT, seed=len(name))
        x = d.embed(8)
        for layer in layers:
            x = d.node("add", [x, LAYERS[layer](d, d.norm(x))], 8)
        made[name] = d.plan(d.norm(x)), d.tensors(tmp_path_factory.mktemp(name))
    return made


def load(model: Model) -> NativeRuntime:
    """Steps of few rows, so that windows have to be moved often."""
    return NativeRuntime.load(*model, slots=SLOTS, max_rows=ROWS, threads=2)


class Fresh:
    """Logits of the last tokens of a sequence, computed from its beginning in one step."""

    def __init__(self, model: Model) -> None:
        self.runtime = NativeRuntime.load(*model, max_rows=CONTEXT, threads=1)

    def __call__(self, tokens: Sequence[int], count: int) -> list[bytes]:
        first = len(tokens) - count
        self.runtime.step([Row(token, 0, i, logits=i >= first) for i, token in enumerate(tokens)])
        return [bytes(self.runtime.logits(i)) for i in range(count)]


def advance(runtime: NativeRuntime, slot: int, tokens: Sequence[int], more: int) -> list[bytes]:
    return run(runtime, tokens[len(tokens) - more :], chunk=ROWS, slot=slot, start=len(tokens) - more)


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_way_to_a_sequence_gives_the_same_bytes(models: dict[str, Model], name: str, data: st.DataObject) -> None:
    runtime, fresh = load(models[name]), Fresh(models[name])
    held: list[list[int]] = [[] for _ in range(SLOTS)]
    known: list[list[int]] = [[] for _ in range(SLOTS)]  # lengths that were remembered, by rising length
    tried: list[list[int]] = [[] for _ in range(SLOTS)]  # the length that is held, as long as no more than a step followed
    for _ in range(data.draw(st.integers(1, 14))):
        slot = data.draw(st.integers(0, SLOTS - 1))
        match data.draw(st.sampled_from(["step", "step", "try", "remember", "rewind", "copy"])):
            case "step":
                more = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30))[: CONTEXT - len(held[slot])]
                held[slot] += more
                tried[slot] = []
                if more:
                    assert advance(runtime, slot, held[slot], len(more)) == fresh(held[slot], len(more))
            case "try":
                runtime.hold(slot)
                tried[slot] = [len(held[slot])]
                more = data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=ROWS))[: CONTEXT - len(held[slot])]
                held[slot] += more
                if more:
                    assert advance(runtime, slot, held[slot], len(more)) == fresh(held[slot], len(more))
            case "remember" if len(known[slot]) < 8:  # with more, some are forgotten
                runtime.remember(slot)
                known[slot] += [len(held[slot])] * (len(held[slot]) not in known[slot])
            case "rewind":
                wanted = data.draw(st.integers(0, len(held[slot]) + 3))
                _check_length(runtime.reach(slot, wanted), wanted, held[slot], known[slot] + tried[slot])
                length = runtime.reach(slot, wanted)
                assert runtime.rewind(slot, wanted) == length
                del held[slot][length:]
                known[slot] = [at for at in known[slot] if at <= length]
                tried[slot] = [at for at in tried[slot] if at < length]
            case "copy":
                wanted, target = data.draw(st.integers(0, len(held[slot]))), data.draw(st.integers(0, SLOTS - 1))
                length = runtime.reach(slot, wanted)
                _check_length(length, wanted, held[slot], known[slot] + tried[slot])
                assert runtime.copy(slot, target, wanted) == length
                tried[target] = [at for at in tried[target] if target == slot and at < length]
                held[target] = held[slot][:length]
                known[target] = [at for at in known[slot] if at <= length]
    for slot in range(SLOTS):  # whatever was done last
        held[slot] = [*held[slot][: CONTEXT - 1], 1]
        start = runtime.rewind(slot, len(held[slot]) - 1)
        assert advance(runtime, slot, held[slot], len(held[slot]) - start) == fresh(held[slot], len(held[slot]) - start)


def _check_length(length: int, wanted: int, held: Sequence[int], known: Sequence[int]) -> None:
    assert 0 <= length <= min(wanted, len(held))
    assert length >= max((at for at in known if at <= wanted), default=0)


TOKENS = [(i * i + i // 7) % VOCAB for i in range(CONTEXT)]


def test_the_first_and_the_last_remembered_lengths_stay(models: dict[str, Model]) -> None:
    runtime, fresh = load(models["all"]), Fresh(models["all"])
    for length in range(4, 124, 4):
        advance(runtime, 0, TOKENS[:length], 4)
        runtime.remember(0)
        runtime.remember(0)  # which changes nothing
        assert runtime.reach(0, length) == length
        assert runtime.reach(0, 7) == 4
    kept = {runtime.reach(0, length) for length in range(124)}
    assert {0, 4, 120} < kept
    assert len(kept) <= 9  # and not all, however often
    for length in sorted(kept, reverse=True):
        assert runtime.rewind(0, length) == length
        assert advance(runtime, 0, TOKENS[: length + 9], 9) == fresh(TOKENS[: length + 9], 9)


def test_a_slot_of_rows_goes_back_to_any_length(models: dict[str, Model]) -> None:
    runtime = load(models["rows"])
    advance(runtime, 0, TOKENS[:50], 50)
    for length in (49, 30, 1, 0):
        assert runtime.reach(0, length) == runtime.copy(0, 1, length) == runtime.rewind(0, length) == length


def test_a_window_goes_back_a_little_without_being_remembered(models: dict[str, Model]) -> None:
    runtime, fresh = load(models["windows"]), Fresh(models["windows"])
    advance(runtime, 0, TOKENS[:100], 100)
    assert runtime.rewind(0, 97) == 97
    assert advance(runtime, 0, TOKENS[:110], 13) == fresh(TOKENS[:110], 13)
    assert runtime.rewind(0, 40) == 0


@pytest.mark.parametrize("name", ["memories", "all"])
def test_a_memory_goes_back_only_to_what_was_remembered(models: dict[str, Model], name: str) -> None:
    runtime, fresh = load(models[name]), Fresh(models[name])
    advance(runtime, 0, TOKENS[:20], 20)
    runtime.remember(0)
    advance(runtime, 0, TOKENS[:90], 70)
    with pytest.raises(ValueError, match="slot 0 can't go on from position 89: rewind it"):
        runtime.step([Row(1, 0, 89)])
    assert runtime.reach(0, 90) == 90
    assert runtime.reach(0, 89) == 20
    assert runtime.copy(0, 1, 89) == 20
    assert runtime.copy(0, 2, 90) == 90
    assert runtime.rewind(2, 25) == 20  # what a slot remembers is copied with it
    other = [*TOKENS[:20], *[3] * 15]
    for slot in (1, 2):
        assert advance(runtime, slot, other, 15) == fresh(other, 15)
    assert advance(runtime, 0, TOKENS[:99], 9) == fresh(TOKENS[:99], 9)
    assert runtime.rewind(0, 50) == 20
    assert advance(runtime, 0, TOKENS[:60], 40) == fresh(TOKENS[:60], 40)
    assert runtime.rewind(1, 19) == 0
    assert advance(runtime, 1, TOKENS[:10], 10) == fresh(TOKENS[:10], 10)


@pytest.mark.parametrize("name", PLANS)
def test_a_step_that_was_tried_is_taken_back_again_and_again(models: dict[str, Model], name: str) -> None:
    runtime, fresh = load(models[name]), Fresh(models[name])
    for length in range(1, CONTEXT - ROWS):
        runtime.step([Row(TOKENS[length - 1], 0, length - 1)])
        runtime.hold(0)
        runtime.step([Row(VOCAB - 1, 0, length + i) for i in range(ROWS)])
        if length % 3 == 0:
            assert runtime.copy(0, 1, length) == length
            assert advance(runtime, 1, TOKENS[: length + 2], 2) == fresh(TOKENS[: length + 2], 2)
        assert runtime.reach(0, length + ROWS - 1) >= length
        assert runtime.rewind(0, length) == length
    assert advance(runtime, 0, TOKENS, CONTEXT - length) == fresh(TOKENS, CONTEXT - length)


def test_what_is_held_displaces_nothing_that_is_remembered(models: dict[str, Model]) -> None:
    runtime = load(models["memories"])
    for length in range(4, 36, 4):
        advance(runtime, 0, TOKENS[:length], 4)
        runtime.remember(0)
    for length in range(33, 60):
        runtime.hold(0)
        advance(runtime, 0, TOKENS[:length], 1)
    assert runtime.reach(0, 58) == 58
    assert [runtime.reach(0, length) for length in range(7, 36, 4)] == list(range(4, 36, 4))
    with pytest.raises(ValueError, match="no slot 3"):
        runtime.hold(SLOTS)


def test_a_new_beginning_forgets(models: dict[str, Model]) -> None:
    """A step at position 0 needs no rewind, and what was remembered of the old sequence is no length of the new one."""
    runtime, fresh = load(models["all"]), Fresh(models["all"])
    advance(runtime, 0, TOKENS[:12], 12)
    runtime.remember(0)
    other = [5, *TOKENS[:30]]
    assert advance(runtime, 0, other, 31) == fresh(other, 31)
    assert runtime.reach(0, 30) == 0


@pytest.mark.parametrize("name", ["windows", "all"])
def test_a_new_beginning_leaves_the_other_slots_alone(models: dict[str, Model], name: str) -> None:
    runtime, fresh = load(models[name]), Fresh(models[name])
    for slot in range(SLOTS):
        advance(runtime, slot, TOKENS[:80], 80)
    for slot in range(SLOTS):
        assert runtime.rewind(slot, 0) == 0
        assert advance(runtime, slot, TOKENS[:9], 9) == fresh(TOKENS[:9], 9)
        for other in range(slot + 1, SLOTS):
            more = TOKENS[: 81 + slot]
            assert advance(runtime, other, more, 1) == fresh(more, 1)
        for other in range(slot):
            more = TOKENS[: 9 + slot - other]
            assert advance(runtime, other, more, 1) == fresh(more, 1)


def test_lengths_and_slots_that_are_not_there(models: dict[str, Model]) -> None:
    runtime = load(models["all"])
    advance(runtime, 0, TOKENS[:12], 12)
    for call in (
        lambda: runtime.rewind(0, -1),
        lambda: runtime.reach(0, -1),
        lambda: runtime.copy(0, 1, -1),
        lambda: runtime.copy(0, 1, 13),
        lambda: runtime.copy(1, 0, 1),
        lambda: runtime.copy(0, SLOTS, 1),
        lambda: runtime.copy(-1, 0, 0),
        lambda: runtime.rewind(SLOTS, 0),
        lambda: runtime.reach(-1, 0),
        lambda: runtime.remember(SLOTS),
    ):
        with pytest.raises(ValueError, match=r"^no slot|^length"):
            call()
    assert runtime.rewind(0, 99) == 12


def test_a_state_that_nothing_uses_changes_nothing(tmp_path: Path) -> None:
    d = Draft(vocab=VOCAB, context=CONTEXT)
    x = _attend(d, d.embed(8))
    d.state(50, recurrent=True)
    d.state(50, window=3)
    runtime = load((d.plan(x), d.tensors(tmp_path)))
    advance(runtime, 0, TOKENS[:20], 20)
    assert runtime.rewind(0, 11) == 11
