"""What a model family is: the objects a plugin registers, and what they may claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from .chat.conversation import Conversation, MediaPart, TurnOptions
    from .chat.output import OutputFormat
    from .chat.prompt import Prompt
    from .compute.checkpoint import Checkpoint
    from .compute.graph import Graph

#: The version of this contract. A family says for which one it was written (`Family.api`).
FAMILY_API = 1


class Capabilities(Struct, frozen=True):
    """What a variant claims. Core refuses by name what is not claimed; the conformance kit proves what is.

    `tools`: `none`, `native` (the family's own format) or `fallback` (injected by prompt, only on request).
    `tool_choice`: how `required` and a named tool are honoured: by an instruction in the `prompt`, or by
    `narrow`ing the declared tools to the named one as well.
    `thinking`: `none`, `optional` or `always`; `thinks`: an optional one is served thinking unless the client says
    otherwise; `efforts` the effort words the family knows, weakest first.
    `preserve`: past reasoning can be kept (`preserve_thinking`). `logprobs`: `none`, `generated` or `prompt`.
    `developer`: prompts have a developer role of their own; else developer turns are rendered as system turns.
    `drafts`: the family's own draft heads. `grammar`: output can be constrained. `decide`: answers System One natively.
    """

    tools: Literal["none", "native", "fallback"] = "none"
    tool_choice: Literal["none", "prompt", "narrow"] = "none"
    strict_tools: bool = False
    thinking: Literal["none", "optional", "always"] = "none"
    thinks: bool = False
    efforts: tuple[str, ...] = ()
    preserve: bool = False
    continuation: bool = False
    inputs: tuple[Literal["text", "image", "audio"], ...] = ("text",)
    logprobs: Literal["none", "generated", "prompt"] = "none"
    drafts: Literal["none", "mtp"] = "none"
    grammar: bool = False
    decide: bool = False
    developer: bool = False


class Sampling(Struct, frozen=True):
    """How a token is picked. temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off; seed None is random."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None


class Variant(Struct, frozen=True):
    """One row of the support matrix: `name` as users write it (lower case, no blanks), `title` as people say it."""

    name: str
    title: str
    capabilities: Capabilities


class Stops(Struct, frozen=True):
    """Where a turn ends by itself: token `specials` by their spelling, and text markers.

    With `patient`, a text marker before the first non-blank character is dropped instead of ending the turn.
    """

    specials: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    patient: bool = False


class TokenizerSpec(Struct, frozen=True):
    """Where the tokenizer is and which spellings are control tokens.

    `file`: a tokenizer.json, a GGUF file that carries its vocabulary, or a file of tiktoken's (`.model`, `.tiktoken`),
    beside which tokenizer_config.json names the added tokens. `specials`: control tokens by spelling; those that the
    files declare as added tokens need not be repeated, and what is given here wins over the files.

    Files of the latter two kinds do not say how text is normalised and split into words, or only by a label
    (GGUF's `tokenizer.ggml.pre`): `splits` gives for each label the family knows, and for "tiktoken", the pattern, as a
    regular expression of the tokenizers library, or several, each applied to what the one before it made. `nfc` says that
    text is brought into Unicode's normal form C first, `whole` that a text which is a word is that word, even where no
    merges lead to it (always so in tiktoken's files).
    """

    file: str
    specials: Mapping[str, int] = {}
    splits: Mapping[str, str | tuple[str, ...]] = {}
    nfc: bool = False
    whole: bool = False


class Family(Protocol):
    """A model family. Instances are stateless: everything about one model comes in as an argument."""

    name: str
    api: int

    def variants(self) -> Sequence[Variant]:
        """The rows of the matrix; needs no weights."""
        ...

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        """The variant a checkpoint is, from its config (never its path), or None if it is not this family's."""
        ...

    def tokenizer(self, checkpoint: Checkpoint) -> TokenizerSpec:
        """Where the checkpoint's tokenizer is. Raises CheckpointError if it has none."""
        ...

    def sampling(self, variant: Variant, options: TurnOptions) -> Sampling:
        """The sampling defaults the model's makers recommend."""
        ...

    def render(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> Prompt:
        """The prompt, byte for byte as the official template prints it. Raises BadRequest for what it cannot say."""
        ...

    def output(self, variant: Variant, conversation: Conversation, options: TurnOptions) -> OutputFormat:
        """The syntax of the answer to `render`'s prompt; `conversation` gives the declared tools."""
        ...

    def stops(self, variant: Variant, options: TurnOptions) -> Stops:
        """Where the turn ends."""
        ...

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        """Declare the forward pass on `g`."""
        ...


class DraftFamily(Family, Protocol):
    """A family with variants that claim drafts."""

    def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
        """Declare on `g` the forward pass of the checkpoint's draft head; false where the checkpoint has none.

        A row of it has the token behind a position, and as `g.given` the hidden row that the model's own forward pass
        has there (`g.hidden`); its logits are for the token after that one. It has states of its own. If it names a
        hidden row as well, that is what it goes on from to draft more than one token."""
        ...


class MediaFamily(Family, Protocol):
    """A family with variants that claim more inputs than text."""

    def encode(self, variant: Variant, part: MediaPart, param: str, room: int) -> Sequence[Sequence[int]]:
        """What stands in the prompt for a sound or an image: the codes of each position, which `Graph.codes` reads; at most
        `room` positions. Raises BadRequest, about the field `param`, for what can't be read or is too long. Called in a
        thread, and seldom twice for the same part."""
        ...
