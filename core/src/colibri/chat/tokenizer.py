"""Prompts to token ids, and tokens to the bytes they stand for.

Text and control tokens take separate ways: text is encoded by a vocabulary that has no control tokens at all, so no
text can become one, and a control token is looked up by its exact spelling.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ..errors import CheckpointError, Refusal
from ..family import TokenizerSpec
from .prompt import Prompt, Special, Spoken, Text
from .vocabulary import BYTES, Vocabulary, read_vocabulary

# The library's own threads are of no use for one text at a time, and it complains when a process that has them forks.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Tokenizer:
    """A model's vocabulary. Safe to use from several threads.

    `specials` are its control tokens by spelling: every added token but those that are only blanks, which are ordinary
    words. `hidden` are the ids of those that are never text for a reader. `vocab_size` is the highest id plus one.
    """

    def __init__(self, vocabulary: Vocabulary, spec: TokenizerSpec) -> None:
        self._encoder = vocabulary.encoder
        self._file = spec.file
        self._words = words = vocabulary.words
        self._added = {id: content.encode() for content, id in vocabulary.added.items()}
        control = {content: id for content, id in vocabulary.added.items() if not content.isspace()}
        known = words.keys() | self._added.keys()
        for content, id in spec.specials.items():
            if id not in known:
                raise CheckpointError(f"the vocabulary has no token {id}, which should be {content!r}", file=spec.file)
        self.specials: Mapping[str, int] = MappingProxyType({**control, **spec.specials})
        self.vocab_size = max(known, default=-1) + 1
        self.hidden = vocabulary.hidden
        self._control = frozenset(self.specials.values()) | frozenset(control.values())

    @classmethod
    def load(cls, spec: TokenizerSpec) -> Tokenizer:
        """Read the file of `spec`. Raises CheckpointError."""
        return cls(read_vocabulary(spec), spec)

    def encode(
        self, prompt: Prompt, lengths: list[int] | None = None, media: Mapping[int, Sequence[int]] | None = None
    ) -> list[int]:
        """The ids of a prompt; `lengths` gets how many there are up to the end of each piece, `media` has the ids that stand
        for each medium by its `ref`. Raises CheckpointError if the vocabulary lacks one of its control tokens."""
        ids: list[int] = []
        for piece in prompt.pieces:
            if isinstance(piece, Text):
                ids += self.encode_text(piece.text)
            elif isinstance(piece, Special):
                if piece.token not in self.specials:
                    raise CheckpointError(f"the vocabulary has no control token {piece.token!r}", file=self._file)
                ids.append(self.specials[piece.token])
            elif isinstance(piece, Spoken):
                ids += piece.ids
            elif media is not None and piece.ref in media:
                ids += media[piece.ref]
            else:
                raise Refusal("This model reads text only.", code="unsupported_content_type", param="messages")
            if lengths is not None:
                lengths.append(len(ids))
        return ids

    def encode_text(self, text: str) -> list[int]:
        """The ids of text, whatever it spells: none is a control token. Lone surrogates count as U+FFFD."""
        try:
            return self._ids(text)
        except (UnicodeEncodeError, TypeError):
            return self._ids(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    def _ids(self, text: str) -> list[int]:
        # Of the library's ways to encode, only those for batches let other threads run meanwhile.
        (encoding,) = self._encoder.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def token_bytes(self, id: int) -> bytes:
        """The bytes a token stands for; b"" for an id the vocabulary does not have."""
        if id in self._added:
            return self._added[id]
        word = self._words.get(id, "")
        try:
            return bytes([BYTES[char] for char in word])
        except KeyError:
            return word.encode()

    def text(self, ids: Iterable[int]) -> str:
        """What tokens spell together; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def check_fits(self, vocab: int, needed: Iterable[int] = ()) -> None:
        """Whether a model of `vocab` tokens has every word, and every id of `needed`. Other added tokens may lie beyond:
        some vocabularies declare tokens that their models never learned. Raises CheckpointError."""
        for id in (*self._words, *needed):
            if not 0 <= id < vocab:
                word = self.token_bytes(id).decode("utf-8", "replace")
                raise CheckpointError(f"gives {word!r} the id {id}, but the model has {vocab} tokens", file=self._file)

    def is_control(self, id: int) -> bool:
        """Whether a token is a control token."""
        return id in self._control
