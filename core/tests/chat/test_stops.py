from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.detokenizer import Run
from colibri.chat.stops import StopFilter, StopText

Seen = tuple[str, str, int | None]


def run(pieces: list[str], stops: list[StopText]) -> Seen:
    """What was passed on, what was dropped, and the stop text that ended it."""
    filter = StopFilter(stops)
    out = [run for piece in pieces for run in filter.feed(Run(piece))]
    if filter.stopped is None:
        out += filter.finish()
    assert "".join(run.text for run in out) + filter.tail == "".join(pieces)
    shown = "".join(run.text for run in out if not run.dropped)
    return shown, "".join(run.text for run in out if run.dropped), filter.stopped


def expected(text: str, stops: list[StopText]) -> Seen:
    """The rule, on the whole text."""
    dropped = ""
    while True:
        found = min(((text.find(stop.text), n) for n, stop in enumerate(stops) if stop.text in text), default=None)
        if found is None:
            return text, dropped, None
        start, n = found
        end = start + len(stops[n].text)
        if not stops[n].patient or text[:start].strip():
            return text[:start], dropped, n
        dropped, text = dropped + text[:end], text[end:]


TEXTS = st.text(alphabet="ab \n", max_size=12)
STOPS = st.lists(st.builds(StopText, st.text(alphabet="ab ", min_size=1, max_size=4), st.booleans()), max_size=4)


@given(TEXTS, STOPS, st.data())
def test_any_cut_stops_where_the_whole_text_does(text: str, stops: list[StopText], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert run(pieces, stops) == expected(text, stops)


@pytest.mark.parametrize(
    ("pieces", "stops", "patient", "shown", "stopped"),
    [
        (["answer S", "TO", "Pignored"], ["STOP"], False, "answer ", 0),
        (["answer ST"], ["STOP"], False, "answer ST", None),
        (["H", "é", "llo"], ["éll"], False, "H", 0),
        (["H", "é", "llo"], ["H"], True, "éllo", None),
        (["STOPuseful STOPdiscarded"], ["STOP"], True, "useful ", 0),
        (["<|us", "er|>answer", "<|user|>ignored"], ["<|user|>"], True, "answer", 0),
        ([" \n", "STOP", " \nSTOP", "x"], ["STOP"], True, "x", None),
        (["aab"], ["ab"], False, "a", 0),
        (["abcx"], ["bc", "abcd"], False, "a", 0),
        (["abcd"], ["bc", "abcd"], False, "", 1),
        (["abc"], ["ab", "abc"], False, "", 0),
        (["abc"], ["abc", "ab"], False, "", 0),
        (["abd"], ["abc", "ab"], False, "", 1),
    ],
)
def test_the_first_stop_text_ends_the_output(
    pieces: list[str], stops: list[str], patient: bool, shown: str, stopped: int | None
) -> None:
    seen = run(pieces, [StopText(stop, patient) for stop in stops])
    assert (seen[0], seen[2]) == (shown, stopped)


def test_only_what_may_begin_a_stop_text_is_held_back() -> None:
    filter = StopFilter([StopText("\n\nUser:")])
    assert [run.text for run in filter.feed(Run("one\ntwo\n"))] == ["one\ntwo"]
    assert [run.text for run in filter.feed(Run("\nUse"))] == []
    assert "".join(run.text for run in filter.feed(Run("ful"))) == "\n\nUseful"


def test_control_tokens_pass_as_tokens() -> None:
    filter = StopFilter([StopText("STOP")])
    assert filter.feed(Run("<call>", 7)) == [Run("<call>", 7)]
    assert filter.feed(Run("S")) == []
    assert filter.feed(Run("<call>", 7)) == [Run("S"), Run("<call>", 7)]


def test_long_repeats_take_linear_time() -> None:
    filter = StopFilter([StopText("a" * 20_000 + "b")])
    passed = sum(len(run.text) for _ in range(60_000) for run in filter.feed(Run("a")))
    assert passed == 40_000
    assert filter.stopped is None


def test_a_huge_stop_text_costs_nothing_before_it_is_met() -> None:
    """Clients may send megabytes of them, and the server's loop would stand still meanwhile."""
    stops = [StopText("ab" * (1 << 20)), StopText("b" * (1 << 20))]
    tracemalloc.start()
    try:
        filter = StopFilter(stops)
        assert "".join(run.text for run in filter.feed(Run("abac"))) == "abac"
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
