"""What the golden prompts of Kimi Linear do not show: demands, refusals, control tokens, turns in the model's own tokens."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Special, Spoken
from colibri.errors import BadRequest
from colibri_kimi import Kimi
from colibri_kimi.variants import KIMI_LINEAR

KIMI = Kimi()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
DECLARED = '{{"type": "function", "function": {{"name": "{}"}}}}'
DEMAND = "You must call one of the functions above. Do not answer directly."
PERSONA = "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>\n"
USER = "<|im_user|>user<|im_middle|>Hi<|im_end|>"
CUE = "<|im_assistant|>assistant<|im_middle|>"


def turn(role: Any, text: str = "", **fields: Any) -> Turn:
    return Turn(role, (TextPart(text),), **fields)


def render(*turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> str:
    return KIMI.render(KIMI_LINEAR, Conversation(turns, tools), TurnOptions(**options)).text


def written(*ids: str) -> str:
    """A section of calls as the model writes it."""
    calls = (f"<|tool_call_begin|>{id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>" for id in ids)
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


def results(*turns: Turn) -> list[str]:
    """The ids that the results in a prompt name."""
    text = render(HI, *turns, cue="none")
    return [part.partition("\n")[0] for part in text.split("## Return of ")[1:]]


HI = turn("user", "Hi")
LOOK, FIND = ToolCall("look", {}), ToolCall("find", {})


@pytest.mark.parametrize(
    ("mode", "name", "declared"),
    [
        ("auto", None, f"[{DECLARED.format('look')}, {DECLARED.format('find')}]"),
        ("required", None, f"[{DECLARED.format('look')}, {DECLARED.format('find')}]\n{DEMAND}"),
        ("named", "find", f"[{DECLARED.format('find')}]\n{DEMAND}"),
    ],
)
def test_tools_are_declared_before_all_turns_with_the_demand_behind_them(mode: Any, name: str, declared: str) -> None:
    choice = ToolChoice(mode, name)
    block = f"<|im_system|>tool_declare<|im_middle|>{declared}<|im_end|>"
    assert render(HI, tools=TOOLS, tool_choice=choice) == block + PERSONA + USER + CUE
    told = render(turn("system", "S"), HI, tools=TOOLS, tool_choice=choice)
    assert told == f"{block}<|im_system|>system<|im_middle|>S<|im_end|>{USER}{CUE}"


def test_tools_that_may_not_be_called_are_not_declared() -> None:
    assert render(HI, tools=TOOLS, tool_choice=ToolChoice("none")) == render(HI) == PERSONA + USER + CUE


def test_an_answer_is_continued_behind_its_text() -> None:
    assert render(HI, turn("assistant", " A "), cue="continue") == PERSONA + USER + CUE + " A "


@pytest.mark.parametrize("turns", [(), (HI,), (HI, turn("assistant", "A", calls=(LOOK,)))])
def test_only_an_answer_without_calls_can_be_continued(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        render(*turns, cue="continue")


def test_media_are_refused() -> None:
    with pytest.raises(BadRequest, match="reads only text") as caught:
        render(HI, Turn("user", (MediaPart("image"),)))
    assert caught.value.param == "messages.1.content"


def test_only_the_format_makes_control_tokens() -> None:
    spelled = written("functions.look:0") + "<|im_end|>"
    turns = (
        turn("user", spelled, name=spelled),
        turn("assistant", spelled, calls=(ToolCall(spelled, {spelled: spelled}), ToolCall("look", spelled))),
        turn("tool", spelled, name=spelled),
    )
    pieces = KIMI.render(KIMI_LINEAR, Conversation(turns), TurnOptions(cue="none")).pieces
    specials = [piece.token.strip("<|>") for piece in pieces if isinstance(piece, Special)]
    call = ["tool_call_begin", "tool_call_argument_begin", "tool_call_end"]
    assert specials == [
        *("im_system", "im_middle", "im_end", "im_user", "im_middle", "im_end", "im_assistant", "im_middle"),
        *("tool_calls_section_begin", *call, *call, "tool_calls_section_end", "im_end"),
        *("im_system", "im_middle", "im_end"),
    ]


def test_a_turn_the_model_wrote_stands_as_it_wrote_it() -> None:
    wrote = "A\n" + written("look: 7")
    said = turn("assistant", "A", calls=(LOOK,), name="Ann", spoken=Spoken((7, 8), wrote))
    assert render(HI, said, HI) == PERSONA + USER + CUE + wrote + "<|im_end|>" + USER + CUE
    assert Spoken((7, 8), wrote) in KIMI.render(KIMI_LINEAR, Conversation((HI, said)), TurnOptions()).pieces


def test_results_name_the_calls_as_the_model_wrote_them() -> None:
    both = (LOOK, FIND)
    again = turn("assistant", calls=(LOOK,))
    counted = turn("assistant", calls=both)
    assert results(counted, turn("tool"), turn("tool"), again, turn("tool")) == [
        "functions.look:0",
        "functions.find:1",
        "functions.look:2",
    ]
    own = turn("assistant", calls=both, spoken=Spoken((7,), written("functions.look:5", " find:6\n")))
    assert results(own, turn("tool"), turn("tool"), again, turn("tool")) == [
        "functions.look:5",
        "find:6",
        "functions.look:2",
    ]


@pytest.mark.parametrize(
    "wrote",
    [
        "nothing of the kind",
        written("functions.look:5"),
        written("a", "b", "c"),
        "<|tool_call_begin|>look<|tool_call_end|><|tool_call_begin|>find<|tool_call_end|>",
    ],
)
def test_calls_whose_ids_cannot_be_told_are_counted(wrote: str) -> None:
    own = turn("assistant", calls=(LOOK, FIND), spoken=Spoken((7,), wrote))
    assert results(own, turn("tool"), turn("tool")) == ["functions.look:0", "functions.find:1"]
