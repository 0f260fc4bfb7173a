"""From a request to what the engine and the reader need, before anything is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from ..chat.asking import ask
from ..chat.conversation import Conversation, TurnOptions
from ..chat.output import OutputFormat
from ..chat.prompt import Media, Prompt, Text
from ..chat.reader import Reader
from ..chat.roles import with_known_roles
from ..chat.schemas import ToolSchemas
from ..chat.thinking import with_defaults
from ..chat.tokenizer import Tokenizer
from ..chat.tools import active_tools
from ..errors import CheckpointError
from ..family import Family, Sampling, Stops, Variant
from ..settings import Settings
from .continuation import continues
from .media import Encoder, Placed, media_of
from .recall import Recall
from .refusals import allowed
from .request import GenerationRequest
from .ways_back import ways_back

#: Texts longer than this many characters are tokenised in a thread, so that running streams don't stall.
LONG_TEXT = 100_000

#: How much of the prompt's end tells an output format in which state the answer starts, in characters.
_TAIL = 512

T = TypeVar("T")


class Model(Struct, frozen=True):
    """What is served, and with which settings. `vocabulary` is the file the tokenizer comes from, `recall` the turns it
    wrote, and `encoder` reads the media."""

    family: Family
    variant: Variant
    tokenizer: Tokenizer
    settings: Settings
    vocabulary: str = ""
    recall: Recall = field(default_factory=Recall)
    encoder: Encoder = field(default_factory=Encoder)

    def stop_ids(self, options: TurnOptions) -> list[int]:
        """The tokens at which a turn ends. Raises CheckpointError if the vocabulary lacks one."""
        stops = self.ask(lambda family: family.stops(self.variant, options), Stops)
        known = self.tokenizer.specials
        missing = next((token for token in stops.specials if token not in known), None)
        if missing is not None:
            raise CheckpointError(f"the vocabulary has no control token {missing!r}, where turns end", file=self.vocabulary)
        return [known[token] for token in stops.specials]

    def sampling(self, options: TurnOptions) -> Sampling:
        """The defaults: the family's, with the temperature of the settings."""
        options = self.with_defaults(options)
        sampling = self.ask(lambda family: family.sampling(self.variant, options), Sampling)
        temperature = self.settings.temp
        return sampling if temperature is None else replace(sampling, temperature=temperature)

    def with_defaults(self, options: TurnOptions) -> TurnOptions:
        """The options with what this server and this model do where the client says nothing."""
        fallback = options.tool_fallback or self.settings.tool_fallback
        return with_defaults(replace(options, tool_fallback=fallback), self.variant.capabilities, self.settings.think)

    def render(self, conversation: Conversation, options: TurnOptions) -> Prompt:
        """The family's prompt."""
        return self.ask(lambda family: family.render(self.variant, conversation, options), Prompt)

    def ask(self, question: Callable[[Family], T], kind: type[T]) -> T:
        """What the family answers. Its own mistakes become a PluginError."""
        return ask(self.family, question, kind)


class Prepared(Struct, frozen=True):
    """A request that this model can serve: the prompt, and how its answer is made and read. `ways_back` tells numbers of the
    prompt's pieces that later prompts are likely to begin with, `media` what its `Media` refer to."""

    prompt: Prompt
    reader: Reader
    stop_ids: list[int]
    max_tokens: int
    sampling: Sampling
    slot: int | None
    ways_back: Callable[[], tuple[int, ...]] = tuple
    media: tuple[Placed, ...] = ()


def prepare(model: Model, request: GenerationRequest) -> Prepared:
    """Check and render a request. Raises BadRequest or Refusal, naming the field."""
    if request.conversation is not None:
        return _prepare_turn(model, request, request.conversation)
    assert request.text is not None, "a request has a conversation or a text"
    reader = Reader(model.tokenizer, stop=request.stop, patient=request.ignore_leading_stop)
    return _prepared(model, request, Prompt((Text(request.text),)), reader, request.options)


def _prepare_turn(model: Model, request: GenerationRequest, conversation: Conversation) -> Prepared:
    variant, settings = model.variant, model.settings
    options = model.with_defaults(request.options)
    options = allowed(variant, conversation, options)
    if variant.capabilities.tools == "none" and conversation.tools:
        conversation = replace(conversation, tools=())  # declared and, by tool_choice none, not to be used
    if options.cue == "new" and continues(conversation, options, variant.capabilities, enabled=settings.continue_assistant):
        options = replace(options, cue="continue")
    conversation = model.recall.restore(with_known_roles(conversation, variant.capabilities))
    schemas = ToolSchemas(active_tools(conversation, options)) if options.strict_tools else None
    prompt = model.render(conversation, options)
    reader = Reader(
        model.tokenizer,
        model.ask(lambda family: family.output(variant, conversation, options), OutputFormat),
        tail=_tail(prompt),
        options=options,
        stops=model.ask(lambda family: family.stops(variant, options), Stops),
        stop=request.stop,
        patient=request.ignore_leading_stop,
        schemas=schemas,
    )
    prepared = _prepared(model, request, prompt, reader, options)
    ways = partial(ways_back, model.render, conversation, options, prompt)
    return replace(prepared, ways_back=ways, media=media_of(conversation))


def _prepared(model: Model, request: GenerationRequest, prompt: Prompt, reader: Reader, options: TurnOptions) -> Prepared:
    limit = model.settings.max_tokens
    return Prepared(
        prompt,
        reader,
        model.stop_ids(options),
        limit if request.max_tokens is None else min(request.max_tokens, limit),
        request.sampling,
        request.slot,
    )


def _tail(prompt: Prompt) -> str:
    pieces: list[str] = []
    length = 0
    for piece in reversed(prompt.pieces):
        if length >= _TAIL:
            break
        text = Prompt((piece,)).text
        pieces.append(text)
        length += len(text)
    return "".join(reversed(pieces))


class Tokenised(Struct, frozen=True):
    """A prompt for the engine: its `ids`, how many there are up to the end of each piece, and the codes of its `media` (see
    engine.frames.Submit), of which so many are `audio`."""

    ids: list[int]
    lengths: list[int]
    media: list[bytes]
    audio: int


async def tokenise(model: Model, prepared: Prepared, room: int) -> Tokenised:
    """The prompt as token ids and codes. Media that alone take more than `room` positions are not encoded. Raises BadRequest
    for those, and for others that can't be read."""
    prompt, placed = prepared.prompt, prepared.media
    lengths: list[int] = []
    encoded = await model.encoder.encode(model.family, model.variant, prompt, placed, room)
    encode = partial(model.tokenizer.encode, prompt, lengths, {ref: media.ids for ref, media in encoded.items()})
    long = sum(len(piece.text) for piece in prompt.pieces if isinstance(piece, Text)) > LONG_TEXT
    ids = await asyncio.to_thread(encode) if long else encode()
    refs = [piece.ref for piece in prompt.pieces if isinstance(piece, Media)]
    audio = sum(len(encoded[ref].ids) for ref in refs if placed[ref].part.kind == "audio")
    return Tokenised(ids, lengths, [codes for ref in refs for codes in encoded[ref].codes], audio)
