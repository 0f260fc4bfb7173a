"""What a client asks, in no client's words: the currency between the API surfaces and the families."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from .prompt import Spoken

Role = Literal["system", "developer", "user", "assistant", "tool"]


class TextPart(Struct, frozen=True, tag="text"):
    """A run of text in a turn."""

    text: str


class MediaPart(Struct, frozen=True, tag="media"):
    """An image or a sound in a turn; `data` holds the decoded bytes of the file."""

    kind: Literal["image", "audio"]
    data: bytes = b""
    format: str = ""


Part = TextPart | MediaPart


class ToolCall(Struct, frozen=True):
    """A call an assistant turn made. `arguments` is the decoded object, or the raw text if it was no JSON object."""

    name: str
    arguments: dict[str, Any] | str
    id: str | None = None

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name; none where the model once wrote something else, which is no fault of the client's."""
        return self.arguments if isinstance(self.arguments, dict) else {}


class Turn(Struct, frozen=True):
    """One message. `content` is None only where the client sent none (or null).

    `spoken` is set where this very turn was written by the model: a renderer prints it in place of content and calls,
    behind what a generation cue ends with, so that the prompt is what the model's state already holds.
    """

    role: Role
    content: tuple[Part, ...] | None = None
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    name: str | None = None
    spoken: Spoken | None = None

    @property
    def text(self) -> str:
        """All text parts, joined without a separator."""
        return "".join(part.text for part in self.content or () if isinstance(part, TextPart))


class Tool(Struct, frozen=True):
    """A declared function. `declaration` is the client's whole tool object, in the client's key order,
    because templates print it; `parameters` is its JSON schema."""

    name: str
    declaration: dict[str, Any]
    parameters: dict[str, Any] = {}
    description: str | None = None


class ToolChoice(Struct, frozen=True):
    """`auto`, `none`, `required`, or `named` together with a declared tool's name."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None


class Conversation(Struct, frozen=True):
    """The turns of a request and the tools declared with them."""

    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()


class TurnOptions(Struct, frozen=True):
    """How the next turn is to be made.

    `cue`: `new` opens an assistant turn, `continue` leaves the last assistant turn open, `none` closes everything.
    `thinking`, `effort` and `preserve_thinking` are None where the client said nothing: the family's default holds.
    `tool_fallback` allows prompt-injected tools on families without a tool format of their own.
    """

    cue: Literal["new", "continue", "none"] = "new"
    thinking: bool | None = None
    effort: str | None = None
    preserve_thinking: bool | None = None
    tool_choice: ToolChoice = ToolChoice()
    strict_tools: bool = False
    tool_fallback: bool = False
