"""Claims in words: each of them has some, and clients and people are told the same."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.family import Capabilities
from colibri.serve.claims import CLAIMS, in_words, words_of


def test_every_capability_has_words() -> None:
    claims: dict[str, Any] = {
        "tools": "native", "tool_choice": "prompt", "strict_tools": True, "thinking": "always", "preserve": True,
        "continuation": True, "inputs": ("text", "image"), "logprobs": "prompt", "drafts": "mtp", "grammar": True,
        "decide": True, "developer": True,
    }  # fmt: skip
    assert {*claims, "efforts", "thinks"} == set(Capabilities.__struct_fields__)
    for name, value in claims.items():
        assert in_words(Capabilities(**{name: value})) != in_words(Capabilities()), name


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({}, "text"),
        ({"tools": "native", "tool_choice": "narrow"}, "tools, tool choice (asked for, a named tool alone)"),
        ({"tools": "fallback", "tool_choice": "prompt"}, "tools by prompt, tool choice (asked for)"),
        ({"thinking": "optional"}, "thinking (on request)"),
        ({"thinking": "optional", "thinks": True, "efforts": ("low", "high")}, "thinking (by default: low, high)"),
        ({"thinking": "always", "efforts": ("max",), "preserve": True}, "thinking (always: max), preserved thinking"),
        ({"inputs": ("text", "image", "audio"), "continuation": True}, "continuation, images, audio"),
    ],
)
def test_claims_in_words(claims: dict[str, Any], words: str) -> None:
    assert in_words(Capabilities(**claims)) == words


def test_words_for_clients() -> None:
    assert words_of(Capabilities()) == ["chat", "completions"]
    assert words_of(Capabilities(tools="fallback", preserve=True)) == ["chat", "completions"]
    everything = Capabilities(
        tools="native", strict_tools=True, thinking="always", continuation=True, inputs=("text", "image", "audio")
    )
    assert words_of(everything) == [
        "chat", "completions", "tools", "strict_tools", "reasoning", "continuation", "vision", "audio"
    ]  # fmt: skip


def test_no_two_claims_share_a_name() -> None:
    words = [claim.word for claim in CLAIMS if claim.word]
    assert len({claim.label for claim in CLAIMS}) == len(CLAIMS)
    assert len(set(words)) == len(words)
