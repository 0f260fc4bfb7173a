"""What a variant claims, in words: the one source of every list and table that says what a model can do."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ..family import Capabilities

_CHOICE = {"prompt": "asked for", "narrow": "asked for, a named tool alone"}


class Claim(Struct, frozen=True):
    """Something a variant may claim: what people call it, and the `word` that clients look for, "" where they have none.

    `how` says how it is claimed, "" if there is no more to say than that it is, and None if it is not.
    """

    label: str
    word: str
    how: Callable[[Capabilities], str | None]

    def said(self, capabilities: Capabilities) -> str | None:
        """Label and details: `thinking (on request: low, high)`; None if it is not claimed."""
        how = self.how(capabilities)
        return f"{self.label} ({how})" if how else None if how is None else self.label


def _thinking(claims: Capabilities) -> str | None:
    if claims.thinking == "none":
        return None
    when = "always" if claims.thinking == "always" else "by default" if claims.thinks else "on request"
    return f"{when}: {', '.join(claims.efforts)}" if claims.efforts else when


def _yes(claimed: bool) -> str | None:
    return "" if claimed else None


CLAIMS = (
    Claim("tools", "tools", lambda claims: _yes(claims.tools == "native")),
    Claim("tools by prompt", "", lambda claims: _yes(claims.tools == "fallback")),
    Claim("tool choice", "", lambda claims: _CHOICE.get(claims.tool_choice)),
    Claim("strict tools", "strict_tools", lambda claims: _yes(claims.strict_tools)),
    Claim("thinking", "reasoning", _thinking),
    Claim("preserved thinking", "", lambda claims: _yes(claims.preserve)),
    Claim("continuation", "continuation", lambda claims: _yes(claims.continuation)),
    Claim("images", "vision", lambda claims: _yes("image" in claims.inputs)),
    Claim("audio", "audio", lambda claims: _yes("audio" in claims.inputs)),
    Claim("developer turns", "", lambda claims: _yes(claims.developer)),
    Claim("logprobs", "", lambda claims: None if claims.logprobs == "none" else claims.logprobs),
    Claim("drafts", "", lambda claims: None if claims.drafts == "none" else claims.drafts),
    Claim("grammar", "", lambda claims: _yes(claims.grammar)),
    Claim("decide", "", lambda claims: _yes(claims.decide)),
)


def in_words(capabilities: Capabilities) -> str:
    """All that is claimed, in a line: `tools, thinking (on request: low, high), continuation`."""
    return ", ".join(filter(None, (claim.said(capabilities) for claim in CLAIMS))) or "text"


def words_of(capabilities: Capabilities) -> list[str]:
    """What a client can ask for, in the words it looks for."""
    return ["chat", "completions", *(claim.word for claim in CLAIMS if claim.word and claim.how(capabilities) is not None)]
