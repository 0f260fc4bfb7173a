"""Prompts to token ids, by byte-level BPE vocabularies from tokenizer.json or GGUF.

Text and control tokens take separate ways: text is encoded by a tokenizer that has no control tokens at all, so no
text can become one, and a control token is looked up by its exact spelling.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken
from tokenizers import Regex as Pattern
from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Chain

from ..compute.checkpoint import file_size
from ..compute.gguf import read_header
from ..errors import CheckpointError, Refusal
from ..family import TokenizerSpec
from .prompt import Prompt, Special, Spoken, Text

#: Largest tokenizer.json that is read, in bytes.
MAX_FILE = 256 << 20

#: The split of the first byte-level vocabulary (https://github.com/openai/gpt-2, encoder.py), GGUF's label "gpt-2".
_SPLITS = {"gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}

#: GGUF token types: words of the vocabulary, and tokens that stand for their own spelling. Others are not in use.
_WORD_TYPES = (1, 6)  # normal, byte
_ADDED_TYPES = (2, 3, 4)  # unknown, control, user-defined
_CONTROL_TYPE = 3


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level vocabularies -> the byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()

# The library's own threads are of no use for one text at a time, and it complains when a process that has them forks.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Tokenizer:
    """A model's vocabulary. Safe to use from several threads.

    `specials` are its control tokens by spelling: every added token but those that are only blanks, which are ordinary
    words. `hidden` are the ids of those that are never text for a reader. `vocab_size` is the highest id plus one.
    """

    def __init__(
        self,
        encoder: Encoder,
        words: Mapping[int, str],
        added: Mapping[str, int],
        hidden: Iterable[int],
        spec: TokenizerSpec,
    ) -> None:
        """`words` are the byte-level tokens by id, `added` the tokens that stand for their own spelling."""
        self._encoder = encoder
        self._file = spec.file
        self._words = words
        self._added = {id: content.encode() for content, id in added.items()}
        control = {content: id for content, id in added.items() if not content.isspace()}
        known = words.keys() | self._added.keys()
        for content, id in spec.specials.items():
            if id not in known:
                raise CheckpointError(f"the vocabulary has no token {id}, which should be {content!r}", file=spec.file)
        self.specials: Mapping[str, int] = MappingProxyType({**control, **spec.specials})
        self.vocab_size = max(known, default=-1) + 1
        self.hidden = frozenset(hidden)
        self._control = frozenset(self.specials.values()) | frozenset(control.values())

    @classmethod
    def load(cls, spec: TokenizerSpec) -> Tokenizer:
        """Read a tokenizer.json or a GGUF file. Raises CheckpointError."""
        file = Path(spec.file)
        return _from_gguf(file, spec) if file.suffix == ".gguf" else _from_json(file, spec)

    def encode(self, prompt: Prompt, lengths: list[int] | None = None) -> list[int]:
        """The ids of a prompt; `lengths` gets how many there are up to the end of each piece. Raises CheckpointError if the
        vocabulary lacks one of its control tokens."""
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
            return bytes([_BYTES[char] for char in word])
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


def _from_json(file: Path, spec: TokenizerSpec) -> Tokenizer:
    def broken(reason: str) -> CheckpointError:
        return CheckpointError(reason, file=file)

    try:
        if file_size(file) > MAX_FILE:
            raise broken(f"is larger than {MAX_FILE >> 20} MiB")
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise broken(f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise broken("is not JSON") from None
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise broken("has no vocabulary (model.vocab)")
    if model.get("type", "BPE") != "BPE" or not any(kind == "ByteLevel" for kind in _kinds(data)):
        raise broken(f"holds a {model.get('type')} vocabulary; only byte-level BPE is read")
    entries = data.get("added_tokens") or []
    try:
        vocab = {str(word): int(id) for word, id in model["vocab"].items()}
        added = {str(entry["content"]): int(entry["id"]) for entry in entries}
        control = {content for content in added if not content.isspace()}
        silent = {entry["content"] for entry in entries if entry.get("special") is True}
        merges = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]]
        model["merges"] = [list(pair) for pair in merges if "".join(pair) not in control]
    except (TypeError, ValueError, KeyError, AttributeError):
        raise broken("has malformed tokens or merges") from None
    words = {id: word for word, id in vocab.items() if word not in added}
    model["vocab"] = _encodable(words, added)
    model["unk_token"] = None
    data |= {
        "added_tokens": [entry for entry in entries if entry["content"] not in control],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    try:
        encoder = Encoder.from_str(json.dumps(data))
    except Exception as error:  # the library raises bare Exception
        raise broken(f"is not a tokenizer: {error}") from None
    hidden = [id for content, id in added.items() if content in silent]
    return Tokenizer(encoder, words, added, hidden, spec)


def _encodable(words: Mapping[int, str], added: Mapping[str, int]) -> dict[str, int]:
    """What text may become: the words, and the added runs of blanks, to which the library gives other ids unless the
    vocabulary holds them."""
    blank = {content: id for content, id in added.items() if content.isspace()}
    return {word: id for id, word in words.items() if word not in added} | blank


def _kinds(value: Any) -> Iterator[Any]:
    """The `type` of every object below `value`, except in the vocabulary."""
    if isinstance(value, dict):
        yield value.get("type")
        for key, inner in value.items():
            if key not in ("vocab", "merges", "added_tokens"):
                yield from _kinds(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _kinds(inner)


def _from_gguf(file: Path, spec: TokenizerSpec) -> Tokenizer:
    metadata, _ = read_header(file)

    def items(key: str, kind: type) -> Sequence[Any]:
        value = metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise CheckpointError(f"metadata tokenizer.ggml.{key} is missing or malformed", file=file)
        return value

    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if model != "gpt2":
        raise CheckpointError(f"metadata tokenizer.ggml.model is {model!r}; only byte-level BPE (gpt2) is read", file=file)
    pattern = (_SPLITS | dict(spec.splits)).get(pre) if isinstance(pre, str) else None
    if pattern is None:
        raise CheckpointError(f"metadata tokenizer.ggml.pre is {pre!r}, a way to split text that is not known", file=file)
    tokens, types, merges = items("tokens", str), items("token_type", int), items("merges", str)
    if len(types) != len(tokens):
        raise CheckpointError("metadata tokenizer.ggml.token_type does not fit tokenizer.ggml.tokens", file=file)
    words = {id: token for id, (token, type) in enumerate(zip(tokens, types, strict=True)) if type in _WORD_TYPES}
    added = {token: id for id, (token, type) in enumerate(zip(tokens, types, strict=True)) if type in _ADDED_TYPES}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        encoder = Encoder(BPE(vocab=_encodable(words, added), merges=pairs))
        split = Split(Pattern(pattern), behavior="isolated")
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"metadata tokenizer.ggml.merges is malformed: {error}", file=file) from None
    if spec.nfc:
        encoder.normalizer = NFC()
    encoder.pre_tokenizer = Chain([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    encoder.add_tokens([AddedToken(token, normalized=False) for token, id in added.items() if token.isspace()])
    hidden = [id for id in added.values() if types[id] == _CONTROL_TYPE]
    return Tokenizer(encoder, words, added, hidden, spec)
