from __future__ import annotations

import pytest

from colibri.chat.conversation import TextPart, ToolCall, Turn, TurnOptions
from colibri.chat.open_turn import check_open_turn, is_open_turn
from colibri.errors import BadRequest

USER, ANSWER = Turn("user", (TextPart("Hi"),)), Turn("assistant", (TextPart("He"),))
CONTINUE = TurnOptions(cue="continue")


def test_only_the_last_turn_is_left_open_and_only_to_be_continued() -> None:
    turns = (ANSWER, USER, ANSWER)
    assert [is_open_turn(turns, index, CONTINUE) for index in range(3)] == [False, False, True]
    assert not any(is_open_turn(turns, 2, TurnOptions(cue=cue)) for cue in ("new", "none"))


@pytest.mark.parametrize("turns", [(), (USER,), (ANSWER, USER), (USER, Turn("assistant", calls=(ToolCall("look", {}),)))])
def test_what_is_no_open_answer_can_not_be_continued(turns: tuple[Turn, ...]) -> None:
    check_open_turn(turns, TurnOptions())
    with pytest.raises(BadRequest, match="Only an assistant message without tool calls can be continued"):
        check_open_turn(turns, CONTINUE)
    check_open_turn((USER, ANSWER), CONTINUE)
