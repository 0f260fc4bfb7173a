"""Token ids to text, as they come, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct


class Run(Struct, frozen=True):
    """A run of output: `text`, the id of the control token it is if it is one, and whether it is to be dropped."""

    text: str
    id: int | None = None
    dropped: bool = False


class Vocabulary(Protocol):
    """What the detokenizer asks of a tokenizer."""

    def token_bytes(self, id: int) -> bytes:
        """The bytes a token stands for; b"" for an id the vocabulary does not have."""
        ...

    def is_control(self, id: int) -> bool:
        """Whether a token is a control token."""
        ...


class Detokenizer:
    """Decodes one answer. Bytes that do not make a character yet are held back; bytes that never can become U+FFFD."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> list[Run]:
        """The text of more tokens, one run a token: a run of an ordinary token may be empty. A control token stands
        alone and ends a character that was not complete."""
        runs: list[Run] = []
        for id in ids:
            data = self._vocabulary.token_bytes(id)
            if self._vocabulary.is_control(id):
                if rest := self._decoder.decode(b"", final=True):
                    runs.append(Run(rest))
                runs.append(Run(data.decode("utf-8", "replace"), id))
            else:
                runs.append(Run(self._decoder.decode(data)))
        return runs

    def finish(self) -> str:
        """The output has ended: U+FFFD if a character was left incomplete, else nothing."""
        return self._decoder.decode(b"", final=True)
