"""One generation as the API surfaces ask for it and read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol

from msgspec import Struct

from ..chat.conversation import Conversation, TurnOptions
from ..chat.events import Event
from ..engine.figures import Figures
from ..family import Sampling, Variant

FinishReason = Literal["stop", "length", "tool_calls"]


class GenerationRequest(Struct, frozen=True):
    """What to generate. Exactly one of `conversation` (rendered by the family) and `text` (used as it is) is given.

    `max_tokens` None means the server's limit. `stop` holds the client's stop texts; they never appear in the output.
    `ignore_leading_stop` drops stop texts before the first non-blank character. `slot` pins a cache slot.
    """

    conversation: Conversation | None = None
    text: str | None = None
    options: TurnOptions = TurnOptions()
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    ignore_leading_stop: bool = False
    slot: int | None = None


class Admission(Struct, frozen=True):
    """The engine has accepted: a 200 may be committed. Times in seconds, counts in tokens."""

    slot: int
    queue_seconds: float
    prompt_tokens: int
    cached_tokens: int


class Usage(Struct, frozen=True):
    """Token counts of a finished generation; `reasoning` is the part of `completion` spent on reasoning, `audio` the part of
    `prompt` that is sound."""

    prompt: int
    cached: int
    completion: int
    reasoning: int
    audio: int = 0


class Generation(Protocol):
    """A running generation. Await `admitted`, then iterate; every failure is a ColibriError."""

    async def admitted(self) -> Admission:
        """Wait for a slot and for the engine. Raises Overloaded, BadRequest (the prompt does not fit), EngineError…"""
        ...

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        """Batches of events as they come, merged per engine step. Raises EngineError or ModelOutputError mid-way."""
        ...

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended; only after the iteration."""
        ...

    @property
    def usage(self) -> Usage:
        """What it used; only after the iteration."""
        ...

    def cancel(self) -> None:
        """Nobody reads any more; idempotent, also after the end."""
        ...


class Service(Protocol):
    """The served model as the API surfaces see it."""

    model_id: str
    created: int
    variant: Variant

    @property
    def max_tokens(self) -> int:
        """The server's ceiling for one answer, in tokens."""
        ...

    @property
    def slots(self) -> int:
        """How many cache slots a request may name."""
        ...

    def sampling(self, options: TurnOptions) -> Sampling:
        """The defaults for fields the client left out."""
        ...

    def generate(self, request: GenerationRequest) -> Generation:
        """Start a generation. Rendering errors are raised here; waiting happens in `admitted`."""
        ...

    def health(self) -> tuple[bool, dict[str, object]]:
        """Whether requests can be served now, and what /health tells."""
        ...

    def figures(self) -> Figures:
        """What the engine told of how it works."""
        ...
