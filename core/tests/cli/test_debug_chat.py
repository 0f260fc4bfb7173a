from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from colibri.chat.blocks import BLOCKS
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import Piece, Prompt, Special, prompt
from colibri.chat.tools import active_tools
from colibri.cli import debug_chat, main
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import CheckpointError, PluginError
from colibri.family import FAMILY_API, Capabilities, Sampling, Stops, TokenizerSpec, Variant
from colibri.plugins import Plugins

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
THINKS = OutputFormat(moves={("reasoning", "</t>"): ("content",)}, starts=(("<t>", "reasoning"),))


class Plain:
    """A family that prints what it is asked."""

    name = "plain"
    api = FAMILY_API

    def variants(self) -> list[Variant]:
        return [Variant("plain-1", "Plain 1", Capabilities(tools="native"))]

    def variant_for(self, checkpoint: Checkpoint) -> None:
        return None

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        raise CheckpointError("has none", file=checkpoint.path)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling()

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        def pieces() -> Iterator[Piece | str]:
            for turn in conversation.turns:
                yield Special("<turn>")
                yield f"{turn.role}: {turn.text}"
            yield f" [{options.cue} {options.thinking} {options.effort} {options.preserve_thinking}]"
            yield from (tool.name for tool in active_tools(conversation, options))

        return prompt(pieces())

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        return BLOCKS if active_tools(conversation, options) else THINKS

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(texts=("<turn>",), patient=True)

    def graph(self, checkpoint: Checkpoint, g: object) -> None:
        raise CheckpointError("has none")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Library(BPE(vocab={char: id for id, char in enumerate(alphabet)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = ByteLevel()
    library.add_tokens([AddedToken("<turn>"), AddedToken("</t>")])
    file = tmp_path_factory.mktemp("vocabulary") / "vocabulary.json"
    library.save(str(file))
    return file


def run(what: Any, *lines: Any, tokenizer: Path | None = None, variant: str = "plain-1") -> list[dict[str, Any]]:
    out: list[str] = []
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    assert what(Plugins.of(Plain()), variant, str(tokenizer) if tokenizer else None, texts, out.append) == 0
    return [json.loads(line) for line in out]


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def test_a_request_becomes_text_and_pieces() -> None:
    assert run(debug_chat.render, user("hi é <turn>")) == [
        {
            "text": "<turn>user: hi é <turn> [new None None None]",
            "pieces": [{"special": "<turn>"}, {"text": "user: hi é <turn> [new None None None]"}],
        }
    ]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"add_generation_prompt": False}, "[none None None None]"),
        ({"add_generation_prompt": False, "continue_final_message": True}, "[continue None None None]"),
        ({"enable_thinking": False}, "[new False None None]"),
        ({"chat_template_kwargs": {"thinking": True, "thinking_effort": "max"}}, "[new True max None]"),
        ({"chat_template_kwargs": {"thinking_mode": "chat", "drop_thinking": False}}, "[new False None True]"),
        ({"reasoning_effort": "none", "preserve_thinking": False}, "[new False None False]"),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"clear_thinking": True}}, "[new None low False]"),
        ({"tools": [TOOL]}, "[new None None None]f"),
        ({"tools": [TOOL], "tool_choice": "none"}, "[new None None None]"),
        ({"tools": []}, "[new None None None]"),
    ],
)
def test_template_options_are_understood(fields: dict[str, Any], shown: str) -> None:
    assert run(debug_chat.render, user("x", **fields))[0]["text"] == f"<turn>user: x {shown}"


def test_with_a_tokenizer_there_are_ids(vocabulary: Path) -> None:
    ids = run(debug_chat.render, user("<turn>"), tokenizer=vocabulary)[0]["ids"]
    assert ids[0] == 256
    assert 256 not in ids[1:]


def test_an_output_becomes_what_a_client_gets() -> None:
    call = '<tool_call>{"name": "f", "arguments": {"x": 1.0}}</tool_call>'
    assert run(
        debug_chat.parse,
        {"output": "a</t>b", "prompt_tail": "<t>"},
        {"output": ["a<", "/t>b"], "prompt_tail": "<t>", "finish": "length"},
        {"output": [f"ok\n{call[:9]}", call[9:]], "tools": [TOOL]},
        {"output": "\n<turn>x<turn>y"},
        {"output": ""},
    ) == [
        {"content": "b", "reasoning": "a", "tool_calls": [], "finish": "stop"},
        {"content": "b", "reasoning": "a", "tool_calls": [], "finish": "length"},
        {"content": "ok", "reasoning": None, "tool_calls": [{"name": "f", "arguments": {"x": 1.0}}], "finish": "tool_calls"},
        {"content": "x", "reasoning": None, "tool_calls": [], "finish": "stop"},
        {"content": None, "reasoning": None, "tool_calls": [], "finish": "stop"},
    ]


def test_ids_tell_control_tokens_from_text_that_spells_them(vocabulary: Path) -> None:
    text = run(debug_chat.render, user("</t>"), tokenizer=vocabulary)[0]["ids"][7:11]
    lines = [{"ids": [*text, 257, *text], "prompt_tail": "<t>"}, {"ids": "x"}, {"ids": [True]}]
    seen = run(debug_chat.parse, *lines, tokenizer=vocabulary)
    assert (seen[0]["reasoning"], seen[0]["content"]) == ("</t>", "</t>")
    assert "`ids` must be a list" in seen[1]["error"]
    assert "`ids` must be a list" in seen[2]["error"]
    assert "--tokenizer" in run(debug_chat.parse, lines[0])[0]["error"]


def test_segments_tell_control_tokens_from_text_that_spells_them() -> None:
    case = {"prompt_tail": "<t>", "output": "", "segments": [
        {"text": "a</t>", "special": False}, {"text": "</t>", "special": True}, {"text": "b", "special": False},
    ]}  # fmt: skip
    (shown,) = run(debug_chat.parse, case)
    assert (shown["reasoning"], shown["content"]) == ("a</t>", "b")
    (shown,) = run(debug_chat.parse, {**case, "output": []})
    assert (shown["reasoning"], shown["content"]) == ("a</t>", "b")
    for bad in ({}, [1], [{"text": "a"}], [{"text": 1, "special": True}]):
        (shown,) = run(debug_chat.parse, {**case, "segments": bad})
        assert "`segments` must be" in shown["error"]


def test_a_bad_line_says_why_and_the_next_is_read() -> None:
    rendered = run(
        debug_chat.render, "{", "", "5", {"messages": 5}, user("x", enable_thinking="y"), user("x"), "[" * 100_000
    )
    assert ["error" in line for line in rendered] == [True, True, True, True, False, True]
    parsed = run(
        debug_chat.parse, {}, {"output": [1]}, {"output": "x", "tools": 5}, {"output": "x", "finish": 1}, {"output": "x"}
    )
    assert ["error" in line for line in parsed] == [True, True, True, True, False]


def test_an_unknown_variant_is_named() -> None:
    with pytest.raises(PluginError, match="plain-2"):
        run(debug_chat.render, variant="plain-2")


class Renaming(Plain):
    """A family that has its own words for a control token."""

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        file = checkpoint.path / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError("has none", file=checkpoint.path)
        return TokenizerSpec(str(file), specials={"<turn>": 257})


def test_a_tokenizer_of_any_name_is_read_as_the_family_reads_its_own(vocabulary: Path, tmp_path: Path) -> None:
    def ids(file: Path) -> Any:
        out: list[str] = []
        debug_chat.render(Plugins.of(Renaming()), "plain-1", str(file), [json.dumps(user("x"))], out.append)
        return json.loads(out[0])["ids"]

    usual = tmp_path / "tokenizer.json"
    usual.write_bytes(vocabulary.read_bytes())
    assert ids(usual)[0] == 257
    assert ids(vocabulary) == ids(usual)
    with pytest.raises(CheckpointError, match=r"nowhere\.json: cannot be read"):
        ids(tmp_path / "sub" / "nowhere.json")


class Hasty(Plain):
    """A family whose author has made a mistake."""

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt([conversation.turns[1].text])


def test_a_mistake_in_the_family_fails_its_line_alone() -> None:
    out: list[str] = []
    lines = [json.dumps(user("x")), json.dumps({"messages": [{"role": "user", "content": text} for text in "xy"]})]
    debug_chat.render(Plugins.of(Hasty()), "plain-1", None, lines, out.append)
    failed, rendered = map(json.loads, out)
    assert failed["error"].startswith("family plain failed: IndexError: ")
    assert rendered["text"] == "y"


def test_lines_are_utf8_and_half_a_surrogate_pair_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plugin = tmp_path / "echo.py"
    plugin.write_text(_ECHO, encoding="utf-8")
    cases = tmp_path / "cases.jsonl"
    cases.write_bytes(b'{"messages": [{"role": "user", "content": "\xc3\xa9\\ud83d"}]}\n\xff\n')
    monkeypatch.delenv("COLI_DEBUG", raising=False)
    flags = ["--variant", "echo", "--plugin", str(plugin), "--file", str(cases)]
    assert main(["debug", "render", *flags]) == 0
    shown, broken = capfdbinary.readouterr().out.splitlines()
    assert b"\xc3\xa9\\ud83d" in shown
    assert json.loads(shown)["text"] == "é\ud83d"
    assert "cannot be read" in json.loads(broken)["error"]


_ECHO = """
from colibri import hookimpl
from colibri.chat.output import OutputFormat
from colibri.chat.prompt import prompt
from colibri.family import FAMILY_API, Capabilities, Sampling, Stops, TokenizerSpec, Variant


class Echo:
    name = "echo"
    api = FAMILY_API

    def variants(self):
        return [Variant("echo", "Echo", Capabilities())]

    def variant_for(self, checkpoint): ...
    def tokenizer(self, checkpoint): ...
    def sampling(self, variant, options): ...
    def render(self, variant, conversation, options):
        return prompt(turn.text for turn in conversation.turns)
    def output(self, variant, conversation, options): ...
    def stops(self, variant, options): ...
    def graph(self, checkpoint, g): ...


@hookimpl
def register_families(register):
    register(Echo())
"""
