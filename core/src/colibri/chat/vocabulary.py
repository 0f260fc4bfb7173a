"""Byte-level BPE vocabularies as they are published: tokenizer.json, GGUF, or tiktoken's ranks.

Control tokens are kept out of what encodes text, so that no text can become one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from tokenizers import AddedToken
from tokenizers import Regex as Pattern
from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as Chain

from ..compute.checkpoint import file_size
from ..compute.gguf import read_header
from ..errors import CheckpointError
from ..family import TokenizerSpec

#: Largest file that is read whole, in bytes.
MAX_FILE = 256 << 20

#: Longest word of a file of ranks, in bytes, and what ids are below.
MAX_WORD, MAX_ID = 4096, 1 << 31

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


BYTES = _byte_alphabet()
_CHARACTERS = {byte: character for character, byte in BYTES.items()}


class Vocabulary(Struct, frozen=True):
    """The tokens of a model.

    `words` are the byte-level tokens by id, `added` the tokens that stand for their own spelling, `hidden` the ids of
    those that are never text for a reader. `encoder` turns text into words.
    """

    encoder: Encoder
    words: Mapping[int, str]
    added: Mapping[str, int]
    hidden: frozenset[int]


def read_vocabulary(spec: TokenizerSpec) -> Vocabulary:
    """Read the file of `spec`, which its name tells the format of. Raises CheckpointError."""
    file = Path(spec.file)
    read = {".gguf": _from_gguf, ".model": _from_ranks, ".tiktoken": _from_ranks}.get(file.suffix, _from_json)
    return read(file, spec)


# tokenizer.json


def _from_json(file: Path, spec: TokenizerSpec) -> Vocabulary:
    def broken(reason: str) -> CheckpointError:
        return CheckpointError(reason, file=file)

    data = _json(file)
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
    return Vocabulary(encoder, words, added, frozenset(id for content, id in added.items() if content in silent))


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


# GGUF


def _from_gguf(file: Path, spec: TokenizerSpec) -> Vocabulary:
    metadata, _ = read_header(file)

    def items(key: str, kind: type) -> Sequence[Any]:
        value = metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise CheckpointError(f"metadata tokenizer.ggml.{key} is missing or malformed", file=file)
        return value

    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if model != "gpt2":
        raise CheckpointError(f"metadata tokenizer.ggml.model is {model!r}; only byte-level BPE (gpt2) is read", file=file)
    pattern = {**_SPLITS, **spec.splits}.get(pre) if isinstance(pre, str) else None
    if pattern is None:
        raise CheckpointError(f"metadata tokenizer.ggml.pre is {pre!r}, a way to split text that is not known", file=file)
    tokens, types, merges = items("tokens", str), items("token_type", int), items("merges", str)
    if len(types) != len(tokens):
        raise CheckpointError("metadata tokenizer.ggml.token_type does not fit tokenizer.ggml.tokens", file=file)
    words = {id: token for id, (token, type) in enumerate(zip(tokens, types, strict=True)) if type in _WORD_TYPES}
    added = {token: id for id, (token, type) in enumerate(zip(tokens, types, strict=True)) if type in _ADDED_TYPES}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        bpe = BPE(vocab=_encodable(words, added), merges=pairs, ignore_merges=spec.whole)
        encoder = _encoder(bpe, added, pattern, nfc=spec.nfc)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"metadata tokenizer.ggml.merges is malformed: {error}", file=file) from None
    return Vocabulary(encoder, words, added, frozenset(id for id in added.values() if types[id] == _CONTROL_TYPE))


# Ranks


def _from_ranks(file: Path, spec: TokenizerSpec) -> Vocabulary:
    pattern = spec.splits.get("tiktoken")
    if pattern is None:
        raise CheckpointError("is a file of ranks, and how this model splits text into words is not known", file=file)
    ranks = _ranks(file)
    words = {rank: "".join(map(_CHARACTERS.__getitem__, word)) for word, rank in ranks.items()}
    added, hidden = _declared(file.with_name("tokenizer_config.json"), optional=bool(spec.specials))
    added |= {content: id for content, id in spec.specials.items() if id not in words}
    for content, id in added.items():
        if id in words:
            raise CheckpointError(f"gives a word the id {id}, which is that of the token {content!r}", file=file)
    merges = [(words[left], words[right]) for left, right in _merges(ranks)]
    bpe = BPE(vocab=_encodable(words, added), merges=merges, ignore_merges=True)
    return Vocabulary(_encoder(bpe, added, pattern, nfc=spec.nfc), words, added, hidden)


def _ranks(file: Path) -> dict[bytes, int]:
    """Words and their ranks, which are their ids: a line each, the word in base 64."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(_content(file).splitlines(), 1):
        if not line:
            continue
        try:
            spelled, rank = line.split(b" ")
            word = base64.b64decode(spelled, validate=True)
            known = ranks.setdefault(word, int(rank))
        except ValueError:
            raise CheckpointError(f"line {number} is not a word in base 64 and its rank", file=file) from None
        if not 0 < len(word) <= MAX_WORD or known != int(rank) or not 0 <= known < MAX_ID:
            raise CheckpointError(f"line {number} has a word or a rank that cannot be", file=file)
    if len(set(ranks.values())) != len(ranks):
        raise CheckpointError("gives two words one rank", file=file)
    for byte in range(256):
        if bytes([byte]) not in ranks:
            raise CheckpointError(f"has no word for the byte {byte}", file=file)
    return ranks


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[int, int]]:
    """All ways to join two words to a third, by the rank of the third: any may be joined, the lowest rank first."""
    known = ranks.get
    for word in sorted(ranks, key=ranks.__getitem__):
        pairs = [
            (left, right)
            for cut in range(1, len(word))
            if (left := known(word[:cut])) is not None and (right := known(word[cut:])) is not None
        ]
        yield from sorted(pairs)


def _declared(file: Path, *, optional: bool) -> tuple[dict[str, int], frozenset[int]]:
    """The added tokens that a tokenizer_config.json declares, and those of them that are hidden."""
    if optional and not file.exists():
        return {}, frozenset()
    data = _json(file)
    try:
        entries = {int(id): entry for id, entry in data["added_tokens_decoder"].items()}
        added = {str(entry["content"]): id for id, entry in entries.items()}
        hidden = frozenset(id for id, entry in entries.items() if entry.get("special") is True)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise CheckpointError("has no well-formed added_tokens_decoder, which names the control tokens", file=file) from None
    for id in entries:
        if not 0 <= id < MAX_ID:
            raise CheckpointError(f"added_tokens_decoder has the id {id}, which cannot be", file=file)
    return added, hidden


# What the formats share.


def _encoder(bpe: BPE, added: Mapping[str, int], pattern: str | tuple[str, ...], *, nfc: bool) -> Encoder:
    encoder = Encoder(bpe)
    if nfc:
        encoder.normalizer = NFC()
    patterns = (pattern,) if isinstance(pattern, str) else pattern
    splits = [Split(Pattern(one), behavior="isolated") for one in patterns]
    encoder.pre_tokenizer = Chain([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
    encoder.add_tokens([AddedToken(token, normalized=False) for token in added if token.isspace()])
    return encoder


def _encodable(words: Mapping[int, str], added: Mapping[str, int]) -> dict[str, int]:
    """What text may become: the words, and the added runs of blanks, to which the library gives other ids unless the
    vocabulary holds them."""
    blank = {content: id for content, id in added.items() if content.isspace()}
    return {word: id for id, word in words.items() if word not in added} | blank


def _json(file: Path) -> Any:
    try:
        return json.loads(_content(file))
    except (ValueError, RecursionError):
        raise CheckpointError("is not JSON", file=file) from None


def _content(file: Path) -> bytes:
    try:
        if file_size(file) > MAX_FILE:
            raise CheckpointError(f"is larger than {MAX_FILE >> 20} MiB", file=file)
        return file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", file=file) from None
