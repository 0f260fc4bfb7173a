"""What the golden prompts do not show: personas, demands, refusals, control tokens."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.chat.conversation import Conversation, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Special
from colibri.errors import BadRequest
from colibri.family import Variant
from colibri_qwen import Qwen
from colibri_qwen.variants import QWEN2, QWEN2_5, QWEN3_NEXT

QWEN = Qwen()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
USER = Turn("user", (TextPart("Hi"),))
RESULT = Turn("tool", (TextPart("pond"),))
DEMAND = "\n</tool_call>\nYou must call one of the functions above. Do not answer directly.<|im_end|>\n"
FRAME = {"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"}


def rendered(variant: Variant, talk: Conversation, **options: Any) -> str:
    return QWEN.render(variant, talk, TurnOptions(**options)).text


def test_qwen2_has_another_persona_and_no_tools() -> None:
    assert rendered(QWEN2, Conversation((USER,))) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    for talk in (Conversation((USER,), TOOLS), Conversation((USER, RESULT))):
        with pytest.raises(BadRequest, match="no words for tools"):
            rendered(QWEN2, talk)


def test_qwen3_next_has_no_persona() -> None:
    assert rendered(QWEN3_NEXT, Conversation((USER,))) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(QWEN3_NEXT, Conversation((USER,), TOOLS)).startswith("<|im_start|>system\n# Tools\n")


@pytest.mark.parametrize("variant", [QWEN2_5, QWEN3_NEXT])
def test_a_demand_is_one_line_in_the_tool_block(variant: Variant) -> None:
    talk = Conversation((USER,), TOOLS)
    free = rendered(variant, talk)
    demanded = rendered(variant, talk, tool_choice=ToolChoice("required"))
    assert demanded == free.replace("\n</tool_call><|im_end|>\n", DEMAND, 1)
    named = rendered(variant, talk, tool_choice=ToolChoice("named", "find"))
    assert named == rendered(variant, Conversation((USER,), TOOLS[1:]), tool_choice=ToolChoice("required"))


@pytest.mark.parametrize(
    ("variant", "tokens"), [(QWEN2_5, FRAME), (QWEN3_NEXT, FRAME | {"<tool_response>", "</tool_response>"})]
)
def test_tags_of_the_template_are_control_tokens_as_far_as_the_vocabulary_has_them(
    variant: Variant, tokens: set[str]
) -> None:
    pieces = QWEN.render(variant, Conversation((USER, RESULT), TOOLS), TurnOptions()).pieces
    assert {piece.token for piece in pieces if isinstance(piece, Special)} == tokens


@pytest.mark.parametrize(("variant", "printed"), [(QWEN2_5, r'"{\"x\": "'), (QWEN3_NEXT, '{"x": ')])
def test_arguments_that_were_no_object_are_printed_as_the_template_does(variant: Variant, printed: str) -> None:
    turn = Turn("assistant", calls=(ToolCall("look", '{"x": '),))
    assert f'"arguments": {printed}}}' in rendered(variant, Conversation((USER, turn)))


@pytest.mark.parametrize("turns", [(), (USER,)])
def test_only_an_answer_can_be_continued(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        rendered(QWEN2_5, Conversation(turns), cue="continue")
