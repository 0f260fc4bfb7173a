"""Batching never changes what a request gets: the invariant, over schedules that hypothesis makes up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri.compute.plan import Codes
from colibri.engine.drafts.choice import Drafts
from colibri.engine.drafts.lookup import PromptLookup
from colibri.engine.frames import Accept, Done, Error, Submit, Tokens, mark_of
from colibri.engine.planner import Planner
from colibri.family import Sampling
from colibri.testing.runtime import ScriptedRuntime, alone, replying
from colibri.testing.speculation import Guesses

GREEDY = Sampling()
VOCAB = 32


class Desk:
    """A planner and what it said, by request."""

    def __init__(self, runtime: ScriptedRuntime, chunk: int = 4, drafts: Drafts | None = None) -> None:
        self.runtime = runtime
        self.frames: list[Any] = []
        self.planner = Planner(runtime, self.frames.append, chunk=chunk, drafts=drafts)

    def of(self, id: int, kind: type[Any]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind) and frame.id == id]

    def tokens(self, id: int) -> list[int]:
        return [token for frame in self.of(id, Tokens) for token in frame.ids]

    def one(self, id: int, kind: type[Any]) -> Any:
        [frame] = self.of(id, kind)
        return frame

    def drain(self) -> None:
        for _ in range(10_000):
            if not self.planner.busy:
                return
            self.planner.step()
        raise AssertionError("the planner never came to rest")


def submit(id: int, ids: list[int], count: int = 5, **fields: Any) -> Submit:
    return Submit(id, ids, count, fields.pop("sampling", GREEDY), **fields)


def hearing(id: int, ids: list[int | bytes], count: int = 5, **fields: Any) -> Submit:
    """A prompt of tokens and of codes."""
    marks = [mark_of(item) if isinstance(item, bytes) else item for item in ids]
    return submit(id, marks, count, media=[item for item in ids if isinstance(item, bytes)], **fields)


def test_tokens_then_length() -> None:
    desk = Desk(ScriptedRuntime())
    desk.planner.submit(submit(1, [3, 1, 4, 1, 5], 6))
    desk.drain()
    assert desk.one(1, Accept) == Accept(1, 0, 5, 0, 6)
    assert desk.tokens(1) == alone([3, 1, 4, 1, 5], 6)
    assert desk.one(1, Done).finish == "length"
    assert isinstance(desk.frames[0], Accept)
    assert isinstance(desk.frames[-1], Done)


def test_stop_id_is_not_sent() -> None:
    desk = Desk(ScriptedRuntime(pick=replying([7, 8, 9], end=2)))
    desk.planner.submit(submit(1, [1], 10, stop_ids=[2]))
    desk.drain()
    assert desk.tokens(1) == [7, 8, 9]
    assert desk.one(1, Done).finish == "stop"


def test_stop_id_as_the_first_token() -> None:
    desk = Desk(ScriptedRuntime(pick=replying([], end=2)))
    desk.planner.submit(submit(1, [1], 10, stop_ids=[2]))
    desk.drain()
    assert desk.tokens(1) == []
    assert desk.one(1, Done).finish == "stop"


def test_max_tokens_is_clamped_to_the_room_left() -> None:
    desk = Desk(ScriptedRuntime(context=16))
    prompt = list(range(10))
    desk.planner.submit(submit(1, prompt, 1000))
    desk.drain()
    assert desk.one(1, Accept).max_tokens == 6
    assert desk.tokens(1) == alone(prompt, 6)
    assert desk.one(1, Done).finish == "length"


@pytest.mark.parametrize("length", [16, 17, 40])
def test_a_prompt_that_does_not_fit(length: int) -> None:
    desk = Desk(ScriptedRuntime(context=16))
    desk.planner.submit(submit(1, [1] * length))
    assert desk.frames == [
        Error(
            1,
            "context_length_exceeded",
            f"This model's maximum context length is 16 tokens, however your messages resulted in {length} tokens. "
            "Please shorten the conversation, or restart the server with a larger --ctx.",
            400,
            "messages",
        )
    ]
    assert not desk.planner.busy


@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        (submit(2, []), "empty_prompt", "messages"),
        (submit(2, [1, 32]), "invalid_token", "messages"),
        (submit(2, [-1]), "invalid_token", "messages"),
        (submit(2, [1], slot=2), "invalid_value", "cache_slot"),
        (submit(2, [1], slot=-1), "invalid_value", "cache_slot"),
        (submit(2, [1], 0), "invalid_value", "max_tokens"),
        (submit(2, [1], sampling=Sampling(temperature=float("nan"))), "invalid_value", "temperature"),
        (submit(2, [1], sampling=Sampling(temperature=-1.0)), "invalid_value", "temperature"),
        (submit(2, [1], sampling=Sampling(top_p=0.0)), "invalid_value", "top_p"),
        (submit(2, [1], sampling=Sampling(top_k=-1)), "invalid_value", "top_k"),
        (submit(2, [1], sampling=Sampling(min_p=float("inf"))), "invalid_value", "min_p"),
    ],
)
def test_a_bad_request_fails_alone(bad: Submit, code: str, param: str) -> None:
    desk = Desk(ScriptedRuntime())
    desk.planner.submit(submit(1, [5, 6], 4))
    desk.planner.step()
    desk.planner.submit(bad)
    desk.drain()
    error = desk.one(2, Error)
    assert (error.code, error.param, error.status) == (code, param, 400)
    assert desk.tokens(1) == alone([5, 6], 4)


A, B = b"\1\0\2\0", b"\2\0\1\0"  # codes of a moment


def test_codes_stand_where_their_marks_are() -> None:
    runtime = ScriptedRuntime(codes=Codes(2, 3))
    desk = Desk(runtime, chunk=3)
    asked = hearing(1, [4, A, B, 5, A])
    desk.planner.submit(asked)
    desk.drain()
    assert desk.one(1, Accept) == Accept(1, 0, 5, 0, 5)
    rows = [row for rows in runtime.steps for row in rows]
    assert [row.codes for row in rows[:6]] == [b"", A, B, b"", A, b""]
    assert [row.token for row in rows[:5]] == [4, 0, 0, 5, 0]
    assert [row.position for row in rows] == list(range(9))
    assert desk.tokens(1) == alone(asked.ids, 5)


def test_equal_sounds_are_shared_and_different_ones_never() -> None:
    desk = Desk(ScriptedRuntime(slots=1, codes=Codes(2, 3)))
    for id, prompt, cached in (
        (1, [7, A, B, A, 9], 0),
        (2, [7, A, B, A, 8], 4),
        (3, [7, A, B, B, 8], 3),
        (4, [7, B, B, B, 8], 1),
        (5, [0, B, B, B, 8], 0),
    ):
        asked = hearing(id, prompt)
        desk.planner.submit(asked)
        desk.drain()
        assert desk.one(id, Accept).cached == cached
        assert desk.tokens(id) == alone(asked.ids, 5)


def test_a_sound_in_a_busy_slot_is_copied() -> None:
    desk = Desk(ScriptedRuntime(slots=2, max_rows=32, codes=Codes(2, 3)), chunk=16)
    sound = [A, B] * 4
    desk.planner.submit(hearing(1, [*sound, 11], 20))
    desk.planner.step()
    asked = hearing(2, [*sound, B], 5)
    desk.planner.submit(asked)
    assert (desk.one(2, Accept).slot, desk.one(2, Accept).cached) == (1, 8)
    desk.drain()
    assert desk.tokens(2) == alone(asked.ids, 5)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (submit(2, [1, mark_of(A)]), "invalid_token"),
        (submit(2, [1, 2], media=[A]), "invalid_media"),
        (submit(2, [1, mark_of(A)], media=[A, A]), "invalid_media"),
        (submit(2, [mark_of(A), mark_of(A)], media=[A]), "invalid_media"),
        (submit(2, [1, mark_of(A), mark_of(B)], media=[B, A]), "invalid_media"),
        (submit(2, [1, -1], media=[A]), "invalid_media"),
        (hearing(2, [1, b"\1\0"]), "invalid_media"),
        (hearing(2, [1, b"\1\0\3\0"]), "invalid_media"),
        (hearing(2, [1, b"\1\0\1\1"]), "invalid_media"),
        (hearing(2, [1, b""]), "invalid_media"),
        (hearing(2, [1, A, 32]), "invalid_token"),
    ],
)
def test_media_that_do_not_fit_are_refused(bad: Submit, code: str) -> None:
    for codes in (Codes(2, 3), None):
        desk = Desk(ScriptedRuntime(codes=codes))
        desk.planner.submit(bad)
        error = desk.one(2, Error)
        assert (error.code, error.param, error.status) == (code, "messages", 400)
        assert not desk.planner.busy


def test_a_model_of_tokens_takes_no_codes() -> None:
    desk = Desk(ScriptedRuntime())
    desk.planner.submit(hearing(1, [1, A]))
    assert desk.one(1, Error).code == "invalid_media"


def test_a_busy_slot_is_refused() -> None:
    desk = Desk(ScriptedRuntime(slots=1))
    desk.planner.submit(submit(1, [1], 4))
    desk.planner.submit(submit(2, [1], 4))
    desk.planner.submit(submit(3, [1], 4, slot=0))
    desk.drain()
    assert [desk.one(id, Error).code for id in (2, 3)] == ["slot_busy", "slot_busy"]
    assert desk.tokens(1) == alone([1], 4)


def test_a_second_submit_with_an_id_in_flight_changes_nothing() -> None:
    desk = Desk(ScriptedRuntime())
    desk.planner.submit(submit(1, [1], 4))
    desk.planner.submit(submit(1, [2], 4))
    desk.drain()
    assert desk.tokens(1) == alone([1], 4)
    assert len(desk.of(1, Accept)) == len(desk.of(1, Done)) == 1


def test_cancel_and_stop_between_chunks() -> None:
    desk = Desk(ScriptedRuntime(), chunk=4)
    desk.planner.submit(submit(1, [1] * 30))
    desk.planner.submit(submit(2, [2] * 30))
    desk.planner.step()
    desk.planner.cancel(1)
    desk.planner.stop(2)
    assert desk.one(1, Done).finish == "cancelled"
    assert desk.one(2, Done).finish == "stop"
    assert not desk.planner.busy
    assert desk.planner.slots.all[0].history == [1] * 4
    desk.planner.cancel(1)
    desk.planner.stop(77)
    assert len(desk.frames) == 4


def test_prompts_take_turns_and_answers_go_on() -> None:
    runtime = ScriptedRuntime(slots=3, max_rows=8)
    desk = Desk(runtime, chunk=4)
    desk.planner.submit(submit(1, [1], 20))
    desk.planner.step()
    desk.planner.submit(submit(2, [2] * 12))
    desk.planner.submit(submit(3, [3] * 12))
    for _ in range(4):
        desk.planner.step()
    slots = [[row.slot for row in rows] for rows in runtime.steps]
    assert slots[1:] == [[0, 1, 1, 1, 1], [0, 2, 2, 2, 2]] * 2
    assert len(desk.tokens(1)) == 5


def test_a_chunk_leaves_room_for_every_answer() -> None:
    runtime = ScriptedRuntime(slots=3, max_rows=3)
    desk = Desk(runtime, chunk=100)
    for id in (1, 2, 3):
        desk.planner.submit(submit(id, [id] * 9, 6))
    desk.drain()
    assert max(map(len, runtime.steps)) == 3
    assert [desk.tokens(id) for id in (1, 2, 3)] == [alone([id] * 9, 6) for id in (1, 2, 3)]


def test_a_failed_step_fails_its_requests_and_nothing_after_them() -> None:
    class Faulty(ScriptedRuntime):
        failing = False

        def step(self, rows: Any) -> list[int]:
            if self.failing:
                super().step(rows)
                raise RuntimeError("the disk is gone")
            return super().step(rows)

    runtime = Faulty()
    desk = Desk(runtime, chunk=4)
    desk.planner.submit(submit(1, [1, 2, 3, 4, 5, 6], 10))
    desk.planner.step()
    desk.planner.submit(submit(2, [9, 9, 9], 10))
    desk.planner.step()
    runtime.failing = True
    desk.planner.step()
    runtime.failing = False
    assert "the disk is gone" in desk.one(1, Error).message
    assert not desk.planner.busy or desk.of(2, Error)
    desk.drain()
    desk.planner.submit(submit(3, [1, 2, 3, 4, 5, 6, 7], 5, slot=0))
    desk.drain()
    assert desk.tokens(3) == alone([1, 2, 3, 4, 5, 6, 7], 5)


def test_only_the_request_that_is_to_blame_fails() -> None:
    class Allergic(ScriptedRuntime):
        def step(self, rows: Any) -> list[int]:
            if any(row.token == 9 for row in rows):
                raise RuntimeError("no nines")
            return super().step(rows)

    desk = Desk(Allergic(slots=2, pick=replying([1, 2, 3], 0)))
    desk.planner.submit(submit(1, [1, 2], 4))
    desk.planner.step()
    desk.planner.submit(submit(2, [5, 5, 5, 5, 9, 5], 4))
    desk.drain()
    assert "no nines" in desk.one(2, Error).message
    assert desk.tokens(1) == [1, 2, 3, 0]
    desk.planner.submit(submit(3, [5, 5, 5, 5, 5], 2, slot=1))
    assert desk.one(3, Accept).cached == 4
    desk.drain()
    assert desk.tokens(3) == [1, 2]


def test_the_last_prompt_token_is_always_computed() -> None:
    desk = Desk(ScriptedRuntime(slots=1))
    prompt = [1, 2, 3, 4, 5, 6]
    desk.planner.submit(submit(1, prompt, 3))
    desk.drain()
    desk.planner.submit(submit(2, prompt, 3))
    desk.drain()
    assert desk.one(2, Accept).cached == 5
    assert desk.tokens(2) == desk.tokens(1) == alone(prompt, 3)


def test_a_prefix_in_a_busy_slot_is_copied() -> None:
    desk = Desk(ScriptedRuntime(slots=2, max_rows=32), chunk=16)
    system = list(range(10))
    desk.planner.submit(submit(1, [*system, 11], 20))
    desk.planner.step()
    desk.planner.submit(submit(2, [*system, 12], 5))
    assert desk.one(2, Accept).slot == 1
    assert desk.one(2, Accept).cached == 10
    desk.drain()
    assert desk.tokens(1) == alone([*system, 11], 20)
    assert desk.tokens(2) == alone([*system, 12], 5)


def test_a_state_that_cannot_be_cut_is_remembered_where_prompts_may_part() -> None:
    runtime = ScriptedRuntime(slots=2, max_rows=16, sequential=True)
    desk = Desk(runtime, chunk=16)
    system = list(range(6))
    desk.planner.submit(submit(1, [*system, 11, 12, 13], 3, ways_back=[6, 9, 50, -1]))
    desk.drain()
    assert runtime.remembered[0] == {0, 6, 9}
    desk.planner.submit(submit(2, [*system, 14], 3, slot=1))
    assert desk.one(2, Accept).cached == 6
    desk.drain()
    assert desk.tokens(2) == alone([*system, 14], 3)
    desk.planner.submit(submit(3, [*system, 11, 15], 3, slot=0))
    assert desk.one(3, Accept).cached == 6
    desk.drain()
    assert desk.tokens(3) == alone([*system, 11, 15], 3)


def test_an_answer_goes_on_from_where_it_ended_whatever_was_remembered() -> None:
    desk = Desk(ScriptedRuntime(slots=1, max_rows=16, sequential=True), chunk=16)
    desk.planner.submit(submit(1, [1, 2, 3], 4))
    desk.drain()
    history = [1, 2, 3, *desk.tokens(1)[:3]]
    desk.planner.submit(submit(2, [*history, 7, 8], 2))
    assert desk.one(2, Accept).cached == len(history)


def test_long_prompts_are_remembered_from_time_to_time() -> None:
    runtime = ScriptedRuntime(context=4096, slots=1, max_rows=512, sequential=True)
    desk = Desk(runtime, chunk=400)
    desk.planner.submit(submit(1, [5] * 2500, 1))
    desk.drain()
    assert runtime.remembered[0] == {0, 1024, 2048}


def test_sampling_without_a_seed_is_drawn_once_a_request() -> None:
    runtime = ScriptedRuntime()
    desk = Desk(runtime)
    desk.planner.submit(submit(1, [1, 2], 6, sampling=Sampling(temperature=1.0)))
    desk.planner.submit(submit(2, [1, 2], 6, sampling=Sampling(temperature=1.0)))
    desk.drain()
    seeds: dict[int, set[int | None]] = {}
    for rows in runtime.steps:
        for row in rows:
            if row.sampling is not None:
                seeds.setdefault(row.slot, set()).add(row.sampling.seed)
    [first], [second] = seeds[0], seeds[1]
    assert first is not None
    assert first != second
    assert desk.tokens(1) == alone([1, 2], 6, seed=first)
    assert desk.tokens(2) == alone([1, 2], 6, seed=second)


def drafting(runtime: ScriptedRuntime, texts: list[list[int]], luck: float = 1.0, chunk: int = 4) -> Desk:
    """A desk that drafts up to six tokens, each right by that chance."""
    return Desk(runtime, chunk, Drafts(runtime, [Guesses(texts, VOCAB, luck=luck)], gated=False))


def test_right_drafts_come_in_one_frame_and_are_told() -> None:
    runtime = ScriptedRuntime(slots=1, max_rows=16)
    answer = alone([3, 1, 4], 20)
    desk = drafting(runtime, [[3, 1, 4, *answer]])
    desk.planner.submit(submit(1, [3, 1, 4], 20))
    desk.drain()
    assert desk.tokens(1) == answer
    frames = [len(frame.ids) for frame in desk.of(1, Tokens)]
    assert len(frames) == len(runtime.steps) < 20
    assert frames == [1, *(len(rows) for rows in runtime.steps[1:])]
    drafted, right = desk.one(1, Done).drafts["guesses"]
    assert drafted == right == 20 - len(frames)


def test_without_drafts_none_are_told() -> None:
    desk = Desk(ScriptedRuntime())
    desk.planner.submit(submit(1, [3, 1, 4], 4))
    desk.drain()
    assert desk.one(1, Done).drafts == {}


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("at", range(1, 13))
def test_nothing_behind_a_stop_is_sent_or_kept(at: int, sequential: bool) -> None:
    answer = alone([3, 1, 4], 20, vocab=1009)
    runtime = ScriptedRuntime(slots=1, vocab=1009, max_rows=16, sequential=sequential)
    desk = drafting(runtime, [[3, 1, 4, *answer]])
    desk.planner.submit(submit(1, [3, 1, 4], 20, stop_ids=[answer[at]]))
    desk.drain()
    assert desk.tokens(1) == answer[:at]
    assert desk.one(1, Done).finish == "stop"
    history = desk.planner.slots.all[0].history
    held = [3, 1, 4, *answer[:at]]
    assert history == held[: len(history)]
    assert sequential or history == held
    assert runtime.reach(0, 99) == len(history)
    desk.planner.submit(submit(2, [*held, 7, 7], 5))
    assert desk.one(2, Accept).cached == len(history)
    desk.drain()
    assert desk.tokens(2) == alone([*held, 7, 7], 5, vocab=1009)


@pytest.mark.parametrize("limit", range(1, 10))
def test_nothing_is_drafted_behind_the_limit(limit: int) -> None:
    runtime = ScriptedRuntime(slots=1, max_rows=16)
    answer = alone([3, 1, 4], 20)
    desk = drafting(runtime, [[3, 1, 4, *answer]])
    desk.planner.submit(submit(1, [3, 1, 4], limit))
    desk.drain()
    assert desk.tokens(1) == answer[:limit]
    assert desk.one(1, Done).finish == "length"
    assert max(row.position for rows in runtime.steps for row in rows) == 3 + limit - 2
    assert desk.planner.slots.all[0].history == [3, 1, 4, *answer[: limit - 1]]


@pytest.mark.parametrize("sequential", [False, True])
def test_a_slot_with_wrong_drafts_holds_only_what_was_said(sequential: bool) -> None:
    runtime = ScriptedRuntime(slots=1, max_rows=16, sequential=sequential)
    desk = drafting(runtime, [], luck=0.0)
    desk.planner.submit(submit(1, [3, 1, 4], 40))
    for _ in range(12):
        desk.planner.step()
        said = [3, 1, 4, *desk.tokens(1)]
        held = desk.planner.slots.all[0].history
        assert held == said[: len(held)]
    desk.planner.cancel(1)
    said = [3, 1, 4, *desk.tokens(1)]
    assert desk.one(1, Done).finish == "cancelled"
    desk.planner.submit(submit(2, [*said, 9], 6))
    desk.drain()
    assert desk.tokens(2) == alone([*said, 9], 6)


def test_drafts_take_no_rows_from_prompts_and_answers() -> None:
    for luck in (0.0, 1.0):
        runtime = ScriptedRuntime(slots=3, max_rows=7, sequential=True)
        prompts = {id: [id] * 9 for id in (1, 2, 3)}
        desk = drafting(runtime, [[*ids, *alone(ids, 30)] for ids in prompts.values()], luck)
        desk.planner.submit(submit(1, prompts[1], 30))
        desk.planner.submit(submit(2, prompts[2], 30))
        for _ in range(8):
            desk.planner.step()
        desk.planner.submit(submit(3, prompts[3], 30))
        before = len(runtime.steps)
        for _ in range(4):
            desk.planner.step()
        assert {0, 1, 2} <= {row.slot for row in runtime.steps[before]}
        desk.drain()
        assert max(map(len, runtime.steps)) <= 7
        assert [desk.tokens(id) for id in prompts] == [alone(ids, 30) for ids in prompts.values()]


def test_a_step_that_fails_with_drafts_is_made_without() -> None:
    class Picky(ScriptedRuntime):
        def step(self, rows: Any) -> list[int]:
            picked = super().step(rows)
            if any(row.token == 9 for row in rows):
                raise RuntimeError("no nines")
            return picked

    class Nines(Guesses):
        def draft(self, wanted: Any) -> list[list[int]]:
            return [[9] * count for _, count in wanted]

    for sequential in (False, True):
        runtime = Picky(slots=1, max_rows=16, sequential=sequential, pick=replying([1, 2, 3, 4, 5, 6], 0))
        desk = Desk(runtime, drafts=Drafts(runtime, [Nines([], VOCAB)], gated=False))
        desk.planner.submit(submit(1, [1, 2], 7))
        desk.drain()
        assert desk.tokens(1) == [1, 2, 3, 4, 5, 6, 0]


def test_seeded_answers_are_the_same_with_drafts() -> None:
    for seed in range(8):
        answer = alone([1, 2], 12, seed=seed)
        runtime = ScriptedRuntime(slots=1, max_rows=16)
        desk = drafting(runtime, [[1, 2, *answer]], luck=0.8)
        desk.planner.submit(submit(1, [1, 2], 12, sampling=Sampling(temperature=1.0, seed=seed)))
        desk.drain()
        assert desk.tokens(1) == answer
        assert desk.one(1, Done).drafts["guesses"][1] > 0


#: Few tokens and codes, so that prefixes are shared often.
PROMPTS = st.lists(st.integers(0, 3) | st.sampled_from([A, B]), min_size=1, max_size=24)


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Submissions with the steps, cancels and stops that come between them."""
    actions: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 8))):
        slot = draw(st.none() | st.integers(0, 2))
        seed = draw(st.none() | st.integers(0, 9))
        actions.append(("submit", (draw(PROMPTS), draw(st.integers(1, 10)), slot, seed)))
        for _ in range(draw(st.integers(0, 6))):
            actions.append(
                draw(st.sampled_from([("step", None), ("step", None), ("cancel", 0), ("stop", 1), ("cancel", 2)]))
            )
    return actions


@given(
    schedules(),
    st.integers(1, 9),
    st.integers(3, 12),
    st.integers(1, 3),
    st.booleans(),
    st.sets(st.integers(0, 30)),
    st.none() | st.floats(0, 1),
)
@settings(max_examples=250, deadline=None)
def test_any_schedule_gives_the_tokens_of_a_request_alone(
    schedule: list[tuple[str, Any]],
    chunk: int,
    max_rows: int,
    slots: int,
    sequential: bool,
    ways_back: set[int],
    luck: float | None,
) -> None:
    runtime = ScriptedRuntime(
        context=32, slots=slots, vocab=VOCAB, max_rows=max_rows, sequential=sequential, codes=Codes(2, 3)
    )
    texts: list[list[int]] = []
    drafts = None
    if luck is not None:
        drafts = Drafts(runtime, [Guesses(texts, VOCAB, luck=luck), PromptLookup(slots, 3)], gated=False)
    desk = Desk(runtime, chunk, drafts)
    wanted: dict[int, list[int]] = {}
    ended_early: set[int] = set()
    calls: dict[str, Callable[[int], None]] = {"cancel": desk.planner.cancel, "stop": desk.planner.stop}
    for action, detail in schedule:
        if action == "submit":
            prompt, count, slot, seed = detail
            id = len(wanted) + 1
            sampling = GREEDY if seed is None else Sampling(temperature=1.0, seed=seed)
            asked = hearing(id, prompt, count, slot=slot, sampling=sampling, ways_back=list(ways_back))
            wanted[id] = alone(asked.ids, min(count, 32 - len(prompt)), vocab=VOCAB, seed=seed)
            texts.append([*asked.ids, *wanted[id]])
            desk.planner.submit(asked)
        elif action == "step":
            desk.planner.step()
        elif wanted:
            id = max(1, len(wanted) - detail)
            if not desk.of(id, Done) and not desk.of(id, Error):
                ended_early.add(id)
            calls[action](id)
    desk.drain()
    assert sorted(desk.planner.slots.free()) == list(range(slots))
    for slot in desk.planner.slots.all:
        assert runtime.reach(slot.index, 99) == len(slot.history)
    for id, tokens in wanted.items():
        if desk.of(id, Error):
            assert desk.one(id, Error).code in ("slot_busy", "invalid_value")
            assert desk.tokens(id) == []
        elif id in ended_early:
            assert desk.tokens(id) == tokens[: len(desk.tokens(id))]
            assert desk.one(id, Done).finish in ("cancelled", "stop")
        else:
            assert desk.tokens(id) == tokens
            assert desk.one(id, Done).finish == "length"
