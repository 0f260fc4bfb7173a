"""What the golden prompts do not show: the fallback for tools, refusals, the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from colibri.chat.conversation import Conversation, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Special, Text
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import BadRequest, CheckpointError
from colibri_olmoe import OLMOE, Olmoe

FAMILY = Olmoe()
TOOLS = (Tool("look", {"type": "function", "function": {"name": "look"}}),)
USER = Turn("user", (TextPart("Hi"),))


def test_role_markers_are_text_and_the_ends_are_one_token() -> None:
    turns = (USER, Turn("assistant", (TextPart("Ho"),)), USER)
    pieces = FAMILY.render(OLMOE, Conversation(turns), TurnOptions()).pieces
    end = Special("|||IP_ADDRESS|||")
    assert pieces == (
        end,
        Text("<|user|>\nHi\n<|assistant|>\nHo"),
        end,
        Text("\n<|user|>\nHi\n<|assistant|>\n"),
    )


def test_tools_are_described_only_where_the_fallback_is_on() -> None:
    call = Turn("assistant", None, calls=(ToolCall("look", {"x": 1}),))
    talk = Conversation((USER, call, Turn("tool", (TextPart("seen"),))), TOOLS)
    text = FAMILY.render(OLMOE, talk, TurnOptions(tool_fallback=True)).text
    assert '{"name": "look"}' in text
    assert '<|assistant|>\n<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>|||IP_ADDRESS|||\n' in text
    assert text.endswith("<|user|>\n<tool_response>\nseen\n</tool_response>\n<|assistant|>\n")
    assert "look" not in FAMILY.render(OLMOE, Conversation((USER,), TOOLS), TurnOptions()).text


@pytest.mark.parametrize("turns", [(), (USER,), (USER, Turn("assistant", None, calls=(ToolCall("look", {}),)))])
@pytest.mark.parametrize("fallback", [False, True])
def test_only_an_answer_without_calls_can_be_continued(turns: tuple[Turn, ...], fallback: bool) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        FAMILY.render(OLMOE, Conversation(turns), TurnOptions(cue="continue", tool_fallback=fallback))


def test_a_demand_and_a_named_tool_change_the_description_only() -> None:
    talk = Conversation((USER,), (*TOOLS, Tool("find", {"type": "function", "function": {"name": "find"}})))

    def text(talk: Conversation, mode: Literal["auto", "required", "named", "none"], name: str | None = None) -> str:
        return FAMILY.render(OLMOE, talk, TurnOptions(tool_choice=ToolChoice(mode, name), tool_fallback=True)).text

    demanded = text(talk, "required")
    assert demanded.replace("\nYou must call one of the functions above. Do not answer directly.", "", 1) == text(
        talk, "auto"
    )
    assert text(talk, "named", "look") == text(Conversation((USER,), TOOLS), "required")
    assert text(talk, "none") == text(Conversation((USER,)), "auto")


def test_the_vocabulary_is_the_checkpoints_and_one_id_ends_turns(tmp_path: Path) -> None:
    def checkpoint(format: str, path: Path) -> Checkpoint:
        return Checkpoint(path, format, {"model_type": "olmoe"}, {"general.architecture": "olmoe"}, {})  # type: ignore[arg-type]

    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        FAMILY.tokenizer(checkpoint("safetensors", tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    for spec in (FAMILY.tokenizer(checkpoint("safetensors", tmp_path)), FAMILY.tokenizer(checkpoint("gguf", tmp_path))):
        assert spec.specials == {"|||IP_ADDRESS|||": 50279}
    assert FAMILY.stops(OLMOE, TurnOptions()).specials == ("|||IP_ADDRESS|||",)
    assert FAMILY.variant_for(checkpoint("safetensors", tmp_path)) == OLMOE
