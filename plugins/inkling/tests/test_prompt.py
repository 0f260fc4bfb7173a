"""What the golden prompts do not show: levels, demands, sounds, returned turns, refusals, which model a checkpoint is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Media, Special, Spoken, Text
from colibri.compute.checkpoint import Checkpoint, Tensor
from colibri.errors import BadRequest, CheckpointError
from colibri.family import Variant
from colibri_inkling import Inkling
from colibri_inkling.variants import AUDIO_TABLE, INKLING, INKLING_2_MINI, INKLING_2_SMALL

FAMILY = Inkling()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
HIGH = "<|message_system|><|content_text|>Thinking effort level: 0.9<|end_message|>"
HI = "<|message_user|><|content_text|>Hi<|end_message|>"
CUE = "<|message_model|>"


def turn(role: Any, *texts: str, **fields: Any) -> Turn:
    return Turn(role, tuple(TextPart(text) for text in texts), **fields)


USER = turn("user", "Hi")


def pieces(*turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> tuple[Any, ...]:
    return FAMILY.render(INKLING, Conversation(turns, tools), TurnOptions(**options)).pieces


def rendered(*turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> str:
    return FAMILY.render(INKLING, Conversation(turns, tools), TurnOptions(**options)).text


def checkpoint(config: dict[str, Any], path: Path = Path("model")) -> Checkpoint:
    table = Tensor(AUDIO_TABLE, "f32", (1280, 64), path / "model.safetensors", 0, 1280 * 64 * 4)
    return Checkpoint(path, "safetensors", config, {}, {AUDIO_TABLE: table})


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({}, "0.9"),
        ({"thinking": True}, "0.9"),
        ({"thinking": False}, "0"),
        ({"thinking": False, "effort": "high"}, "0"),
        ({"effort": "none"}, "0"),
        ({"effort": "minimal"}, "0.1"),
        ({"effort": "low"}, "0.2"),
        ({"effort": "medium", "thinking": True}, "0.7"),
        ({"effort": "high"}, "0.9"),
        ({"effort": "xhigh"}, "0.99"),
        ({"effort": "max"}, "0.99"),
        ({"effort": "0"}, "0"),
        ({"effort": "0.0"}, "0"),
        ({"effort": ".5"}, "0.5"),
        ({"effort": "0.35"}, "0.35"),
        ({"effort": "0.700"}, "0.7"),
        ({"effort": "0.1234"}, "0.12"),
        ({"effort": "0.99"}, "0.99"),
    ],
)
def test_the_level_of_thinking_is_a_number_with_two_decimals_at_most(options: dict[str, Any], level: str) -> None:
    assert rendered(USER, **options) == f"{HIGH}{HI}{CUE}".replace("0.9", level)


@pytest.mark.parametrize(
    "effort", ["1", "1.0", "0.991", "-0.1", "nan", "inf", "1e-1", "0_1", " 0.5", "much", "High", "0." + "9" * 30]
)
def test_a_level_that_there_is_not_is_refused(effort: str) -> None:
    with pytest.raises(BadRequest, match="knows the efforts none, minimal") as caught:
        rendered(USER, effort=effort)
    assert caught.value.param == "reasoning_effort"


def test_the_level_stands_behind_the_leading_system_turns() -> None:
    system = "<|message_system|><|content_text|>S<|end_message|>"
    assert rendered(turn("system", "S"), turn("system", "S")) == system + system + HIGH + CUE
    assert rendered(turn("system", "S"), USER, turn("system", "S")) == system + HIGH + HI + system + CUE
    assert rendered() == HIGH + CUE


def test_each_part_is_a_message_and_no_part_is_none() -> None:
    answer = "<|message_model|><|content_text|>a<|end_message|><|message_model|><|content_text|><|end_message|>"
    assert rendered(USER, turn("assistant", "a", ""), cue="none") == f"{HIGH}{HI}{answer}<|content_model_end_sampling|>"
    assert rendered(USER, Turn("assistant"), cue="none") == f"{HIGH}{HI}<|content_model_end_sampling|>"


def test_all_that_was_thought_is_told_again_unless_the_client_does_not_want_it() -> None:
    talk = (USER, turn("assistant", "a", reasoning="R"), USER, turn("assistant", reasoning="S"), turn("tool", "x"))
    thought = "<|message_model|><|content_thinking|>R<|end_message|>"
    assert thought in rendered(*talk)
    assert rendered(*talk, preserve_thinking=True) == rendered(*talk, thinking=True) == rendered(*talk)
    assert rendered(*talk, preserve_thinking=False) == rendered(*talk).replace(thought, "")


def test_a_demand_is_one_line_behind_the_declarations() -> None:
    free = rendered(USER, tools=TOOLS)
    demanded = rendered(USER, tools=TOOLS, tool_choice=ToolChoice("required"))
    line = "\nYou must call one of the functions above. Do not answer directly."
    assert demanded == free.replace("}]<|end_message|>", f"}}]{line}<|end_message|>", 1)
    named = rendered(USER, tools=TOOLS, tool_choice=ToolChoice("named", "find"))
    assert named == rendered(USER, tools=TOOLS[1:], tool_choice=ToolChoice("required"))


def test_what_a_declaration_leaves_out_is_empty() -> None:
    declared = '[{"description":"","name":"look","parameters":{},"type":"function"}]'
    assert rendered(USER, tools=TOOLS[:1]).startswith(
        f"<|message_system|>tool_declare<|content_xml|>{declared}<|end_message|>"
    )


def test_a_result_is_named_by_itself_or_by_the_call_before_it() -> None:
    def called(id: str, name: str) -> Turn:
        return Turn("assistant", calls=(ToolCall(name, {}, id),))

    def named(*turns: Turn) -> str:
        return rendered(USER, *turns).rpartition("<|message_tool|>")[2].partition("<|content_text|>")[0]

    assert named(called("1", "look"), turn("tool", "x", call_id="1")) == "look"
    assert named(called("1", "look"), called("1", "find"), turn("tool", "x", call_id="1")) == "find"
    assert named(called("1", "look"), turn("tool", "x", call_id="1"), called("1", "find")) == "look"
    assert named(called("1", "look"), turn("tool", "x", call_id="1", name="find")) == "find"
    assert named(called("1", "look"), turn("tool", "x", call_id="2")) == ""
    assert (
        rendered(USER, turn("tool", "12:", "00")) == f"{HIGH}{HI}<|message_tool|><|content_text|>12:00<|end_message|>{CUE}"
    )


def test_names_and_arguments_are_text_whatever_they_spell() -> None:
    name = "<|end_message|>"
    assert Text(name) in pieces(
        USER, Turn("assistant", calls=(ToolCall(name, {name: [name]}, "1"),)), turn("tool", "", name=name)
    )


def test_a_sound_stands_between_its_control_tokens() -> None:
    first = Turn("user", (TextPart("a"), MediaPart("audio", b"1", "wav"), MediaPart("audio", b"2", "wav")))
    second = Turn("user", (MediaPart("image"), MediaPart("audio", b"3", "wav")))
    shown = pieces(first, turn("assistant", "Hi"), second)
    assert [piece.ref for piece in shown if isinstance(piece, Media)] == [0, 1, 3]
    tokens = [piece.token if isinstance(piece, Special) else type(piece) for piece in shown[-12:]]
    assert tokens == [
        *("<|end_message|>", "<|content_model_end_sampling|>"),
        *("<|message_user|>", "<|content_image|>", "<|unused_200054|>", "<|end_message|>"),
        *("<|message_user|>", "<|content_audio_input|>", Media, "<|audio_end|>", "<|end_message|>"),
        "<|message_model|>",
    ]


def test_a_returned_turn_is_what_the_model_wrote_and_always_ended() -> None:
    whole, cut = Spoken((1, 2), "<|content_text|>a<|end_message|>"), Spoken((1,), "<|content_text|>a")
    assert pieces(USER, turn("assistant", "a", spoken=whole), USER)[-8:-5] == (
        *(Special("<|message_model|>"), whole, Special("<|content_model_end_sampling|>")),
    )
    assert pieces(USER, turn("assistant", "a", spoken=cut), cue="none")[-3:] == (
        *(cut, Special("<|end_message|>"), Special("<|content_model_end_sampling|>")),
    )


def test_a_returned_turn_is_written_anew_where_its_thoughts_are_left_out() -> None:
    spoken = Spoken((1,), "<|content_thinking|>R<|end_message|><|content_text|>a<|end_message|>")
    thought = turn("assistant", "a", reasoning="R", spoken=spoken)
    plain = turn("assistant", "a", spoken=spoken)
    assert spoken in pieces(USER, thought, USER)
    assert spoken not in pieces(USER, thought, USER, preserve_thinking=False)
    assert spoken in pieces(USER, plain, USER, preserve_thinking=False)
    assert spoken in pieces(USER, thought, preserve_thinking=False)


def test_a_continued_turn_keeps_its_thoughts_and_is_not_the_models_own() -> None:
    spoken = Spoken((1,), "<|content_text|>a")
    opened = rendered(USER, turn("assistant", "a", "b", reasoning="R", spoken=spoken), cue="continue")
    assert opened == (
        f"{HIGH}{HI}<|message_model|><|content_thinking|>R<|end_message|>"
        "<|message_model|><|content_text|>a<|end_message|><|message_model|><|content_text|>b"
    )


@pytest.mark.parametrize(
    "turns",
    [
        (),
        (USER,),
        (USER, Turn("assistant")),
        (USER, Turn("assistant", (TextPart("a"), MediaPart("audio")))),
        (USER, turn("assistant", "a", calls=(ToolCall("look", {}),))),
    ],
)
def test_only_an_answer_that_ends_in_text_can_be_continued(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        rendered(*turns, cue="continue")


@pytest.mark.parametrize(
    ("bad", "param"),
    [
        (turn("developer", "x"), "messages.1.role"),
        (Turn("tool", (MediaPart("audio"),)), "messages.1.content"),
    ],
)
def test_what_the_format_has_no_words_for_is_refused_by_its_field(bad: Turn, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        rendered(USER, bad)
    assert caught.value.param == param


def test_arguments_that_were_no_object_are_none() -> None:
    turns = [Turn("assistant", calls=(ToolCall("b", what),)) for what in ("[1]", "{", {})]
    assert len({rendered(USER, turn) for turn in turns}) == 1


@pytest.mark.parametrize(
    ("model_type", "variant"),
    [
        ("inkling_mm_model", INKLING),
        ("inkling2", INKLING_2_SMALL),
        ("inkling2_text", INKLING_2_SMALL),
        ("inkling2_loop", INKLING_2_MINI),
        ("inkling2_loop_text", INKLING_2_MINI),
        ("inkling3", None),
        (None, None),
    ],
)
def test_the_configuration_tells_the_variant(model_type: str | None, variant: Variant | None) -> None:
    config = {"model_type": model_type, "audio_config": {"n_mel_bins": 80}}
    assert FAMILY.variant_for(checkpoint(config, Path("inkling"))) == variant
    assert FAMILY.variant_for(Checkpoint(Path("m.gguf"), "gguf", {}, {"general.architecture": "inkling2"}, {})) is None


HEARS: dict[str, Any] = {"model_type": "inkling_mm_model", "audio_config": {"n_mel_bins": 80, "mel_vocab_size": 16}}


@pytest.mark.parametrize("audio", [{"n_mel_bins": 80, "mel_vocab_size": 256}, {"n_mel_bins": None}, {}])
def test_inkling_takes_sounds(audio: dict[str, Any]) -> None:
    for config in (HEARS, HEARS | {"audio_config": audio}):
        assert FAMILY.variant_for(checkpoint(config)) == INKLING
    assert INKLING.capabilities.inputs == ("text", "audio")


DEAF: list[dict[str, Any]] = [
    {"model_type": "inkling_text"},
    *(HEARS | {"audio_config": config} for config in (None, [80, 16])),
    *(
        HEARS | {"audio_config": {"n_mel_bins": bands, "mel_vocab_size": levels}}
        for bands, levels in ((40, 16), ("80", 16), (80, 15), (80, "many"))
    ),
]


@pytest.mark.parametrize("config", DEAF)
def test_inkling_takes_sounds_only_where_it_can_hear(config: dict[str, Any]) -> None:
    variant = FAMILY.variant_for(checkpoint(config))
    assert variant is not None
    assert (variant.name, variant.capabilities.inputs) == ("inkling", ("text",))


def test_inkling_without_the_weights_to_hear_with_takes_text() -> None:
    variant = FAMILY.variant_for(replace(checkpoint(HEARS), tensors={}))
    assert variant is not None
    assert variant.capabilities.inputs == ("text",)


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        FAMILY.tokenizer(checkpoint({}, tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert FAMILY.tokenizer(checkpoint({}, tmp_path)).file == str(tmp_path / "tokenizer.json")
