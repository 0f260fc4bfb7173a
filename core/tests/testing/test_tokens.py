"""The kit for token ids, on a vocabulary whose words are bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.prompt import Prompt, Special, prompt
from colibri.family import FAMILY_API, Capabilities, Sampling, Stops, TokenizerSpec, Variant
from colibri.testing.tokens import TokensConformance

BYTES = Variant("bytes-1", "Bytes", Capabilities())
CASES: dict[str, Any] = {
    "special": {"<turn>": 256, "<end>": 257},
    "stop": {"<end>": 257},
    "texts": [
        {"name": "ascii", "text": "a <end>", "ids": [*b"a <end>"], "decodes_to_text": True},
        {"name": "composed", "text": "e\u0301", "ids": [0xC3, 0xA9], "decodes_to_text": False},
    ],
    "prompts": [
        {"name": "hi", "request": {"messages": [{"role": "user", "content": "<end>"}]}, "ids": [256, *b"<end>", 257]}
    ],
}


class Bytes:
    """A family of the smallest vocabulary there can be."""

    name = "bytes"
    api = FAMILY_API

    def variants(self) -> Sequence[Variant]:
        return (BYTES,)

    def variant_for(self, checkpoint: Any) -> Variant | None:
        return None

    def tokenizer(self, checkpoint: Any) -> TokenizerSpec:
        return TokenizerSpec(str(checkpoint.path / "tiktoken.model"), splits={"tiktoken": r"\S+|\s+"}, nfc=True)

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        return Sampling()

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        return prompt(piece for turn in conversation.turns for piece in (Special("<turn>"), turn.text, Special("<end>")))

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Any:
        raise NotImplementedError

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        return Stops(specials=("<end>",))

    def graph(self, checkpoint: Any, g: Any) -> None:
        raise NotImplementedError


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokensConformance:
    folder = tmp_path / "bytes-1"
    folder.mkdir()
    lines = (f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
    (folder / "tiktoken.model").write_text("".join(lines))
    added = {"256": {"content": "<turn>"}, "257": {"content": "<end>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    monkeypatch.setenv("COLIBRI_TOKENIZERS", str(tmp_path))
    return kit_for(tmp_path, CASES)


def kit_for(folder: Path, cases: dict[str, Any]) -> TokensConformance:
    file = folder / "tokens.json"
    file.write_text(json.dumps(cases))

    class Kit(TokensConformance):
        class plugin:
            register_families = staticmethod(lambda register: register(Bytes()))

        family = "bytes"
        tokens = {"bytes-1": file}

    return Kit()


def test_the_kit_takes_a_family_whose_ids_are_right(kit: TokensConformance, tmp_path: Path) -> None:
    for name in dir(kit):
        if name.startswith("test_"):
            getattr(kit, name)(*[tmp_path] * ("gguf" in name))


@pytest.mark.parametrize(
    ("part", "cases", "test"),
    [
        ("texts", [{**CASES["texts"][0], "ids": [257]}], "test_texts_have_their_ids"),
        ("texts", [{**CASES["texts"][1], "decodes_to_text": True}], "test_texts_have_their_ids"),
        ("special", {"<turn>": 257}, "test_control_tokens_and_the_ends_of_turns_have_their_ids"),
        ("special", {"<other>": 258}, "test_control_tokens_and_the_ends_of_turns_have_their_ids"),
        ("stop", {}, "test_control_tokens_and_the_ends_of_turns_have_their_ids"),
        ("prompts", [{**CASES["prompts"][0], "ids": [256, 257, 257]}], "test_prompts_have_their_ids"),
    ],
)
def test_the_kit_finds_ids_that_are_not_the_golden_ones(
    kit: TokensConformance, tmp_path: Path, part: str, cases: Any, test: str
) -> None:
    wrong = kit_for(tmp_path, {**CASES, part: cases})
    with pytest.raises(AssertionError):
        getattr(wrong, test)()


def test_without_tokenizers_the_kit_fails(kit: TokensConformance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLIBRI_TOKENIZERS")
    with pytest.raises(pytest.fail.Exception, match="set COLIBRI_TOKENIZERS"):
        kit.test_texts_have_their_ids()


def test_the_kit_finds_text_that_becomes_a_control_token(kit: TokensConformance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colibri.chat.tokenizer.Tokenizer.encode_text", lambda self, text: [257] * text.count("<end>"))
    with pytest.raises(AssertionError):
        kit.test_text_never_has_the_id_of_a_control_token()
