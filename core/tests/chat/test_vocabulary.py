"""Vocabularies as files of ranks. Those in tokenizer.json and GGUF are tested with the tokenizer."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.prompt import Prompt, Special, Text
from colibri.chat.tokenizer import Tokenizer
from colibri.errors import CheckpointError
from colibri.family import TokenizerSpec

SPLIT = r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"

#: Words beyond the bytes. "ab" comes before "bc", and nothing but itself leads to "xyz".
MORE = [b"ab", b"bc", b"abc", b"aa", b"aaaa", b"<|", b"|>", b"end", b"<|end|>", b"\xc3\xa9", b"12", b"  ", b"xyz"]
WORDS = {bytes([byte]): byte for byte in range(256)} | {word: 256 + n for n, word in enumerate(MORE)}
ADDED = {"300": {"content": "<|end|>", "special": True}, "301": {"content": "<call>", "special": False}}

TEXT = st.lists(st.sampled_from(["ab", "c", "a", "<|end|>", "<|", "é", "12", " ", "xyz", "<call>"]) | st.text(max_size=3))


def ranked(folder: Path, words: dict[bytes, int] = WORDS, added: Any = ADDED) -> TokenizerSpec:
    file = folder / "tiktoken.model"
    file.write_text("".join(f"{base64.b64encode(word).decode()} {rank}\n" for word, rank in words.items()))
    if added is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return TokenizerSpec(str(file), splits={"tiktoken": SPLIT})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(ranked(tmp_path_factory.mktemp("ranks")))


def by_definition(piece: bytes) -> list[int]:
    """A word is itself; else the two neighbours that make the word of the lowest rank are joined, the leftmost first."""
    if piece in WORDS:
        return [WORDS[piece]]
    parts = [piece[n : n + 1] for n in range(len(piece))]
    while pairs := [(WORDS[a + b], n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in WORDS]:
        _, n = min(pairs)
        parts[n : n + 2] = [parts[n] + parts[n + 1]]
    return [WORDS[part] for part in parts]


@given(words=st.lists(st.sampled_from(["a", "b", "c", "x", "y", "z"]), max_size=30))
def test_letters_become_the_words_of_the_lowest_ranks(tokenizer: Tokenizer, words: list[str]) -> None:
    text = "".join(words)
    assert tokenizer.encode_text(text) == (by_definition(text.encode()) if text else [])


@given(digits=st.text("12", max_size=12))
def test_text_is_split_by_the_pattern_first(tokenizer: Tokenizer, digits: str) -> None:
    pieces = re.findall(r"\d{1,3}", digits)
    assert tokenizer.encode_text(digits) == [id for piece in pieces for id in by_definition(piece.encode())]


def test_a_word_is_itself_where_no_merges_lead_to_it(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_text("xyz") == [WORDS[b"xyz"]]
    assert tokenizer.encode_text("xyzx") == [*b"xyzx"]


@given(texts=TEXT)
def test_text_spells_itself_and_no_control_token(tokenizer: Tokenizer, texts: list[str]) -> None:
    text = "".join(texts)
    ids = tokenizer.encode_text(text)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert not any(tokenizer.is_control(id) for id in ids)


def test_control_tokens_are_named_beside_the_ranks(tokenizer: Tokenizer) -> None:
    assert dict(tokenizer.specials) == {"<|end|>": 300, "<call>": 301}
    assert tokenizer.hidden == {300}
    assert tokenizer.encode(Prompt((Special("<|end|>"), Text("ab"), Special("<call>")))) == [300, WORDS[b"ab"], 301]
    assert tokenizer.token_bytes(301) == b"<call>"
    assert tokenizer.vocab_size == 302


def test_a_family_may_name_them_instead(tmp_path: Path) -> None:
    spec = ranked(tmp_path, added=None)
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: does not exist"):
        Tokenizer.load(spec)
    named = Tokenizer.load(TokenizerSpec(spec.file, specials={"<mine>": 400}, splits=spec.splits))
    assert named.encode(Prompt((Special("<mine>"),))) == [400]
    assert dict(named.specials) == {"<mine>": 400}


def test_texts_may_be_brought_into_one_form_first(tmp_path: Path) -> None:
    spec = ranked(tmp_path)
    composed = Tokenizer.load(TokenizerSpec(spec.file, splits=spec.splits, nfc=True))
    assert composed.encode_text("e\u0301") == composed.encode_text("é") == [WORDS[b"\xc3\xa9"]]
    assert Tokenizer.load(spec).encode_text("e\u0301") == [*"e\u0301".encode()]


def edited(line: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(b"YWI= 256\n", line)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (edited(b"ab 256\n"), "line 257 is not a word in base 64 and its rank"),
        (edited(b"YWI=\n"), "line 257 is not a word in base 64 and its rank"),
        (edited(b"YWI= 256 1\n"), "line 257 is not a word in base 64 and its rank"),
        (edited(b"YWI= many\n"), "line 257 is not a word in base 64 and its rank"),
        (edited(b" 256\n"), "line 257 has a word or a rank that cannot be"),
        (edited(b"YWI= -256\n"), "line 257 has a word or a rank that cannot be"),
        (edited(b"YQ== 256\n"), "line 257 has a word or a rank that cannot be"),
        (edited(base64.b64encode(b"a" * 5000) + b" 256\n"), "line 257 has a word or a rank that cannot be"),
        (edited(b"YWI= 257\n"), "gives two words one rank"),
        (edited(b"YWI= 300\n"), "gives a word the id 300, which is that of the token '<|end|>'"),
        (edited(b"YWI= 99999999999\n"), "line 257 has a word or a rank that cannot be"),
        (lambda content: content.removeprefix(b"AA== 0\n"), "has no word for the byte 0"),
        (lambda content: b"\x0a\x0e\x0a\x05<unk>" + content, "line 2 is not a word in base 64 and its rank"),
        (lambda content: b"", "has no word for the byte 0"),
    ],
)
def test_broken_ranks_are_named(tmp_path: Path, edit: Callable[[bytes], bytes], reason: str) -> None:
    spec = ranked(tmp_path)
    file = Path(spec.file)
    file.write_bytes(edit(file.read_bytes()))
    with pytest.raises(CheckpointError, match=re.escape(reason)) as caught:
        Tokenizer.load(spec)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("added", [5, {"x": {"content": "<x>"}}, {"300": {}}, {"300": "<x>"}, []])
def test_malformed_names_of_control_tokens_are_told(tmp_path: Path, added: Any) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: has no well-formed added_tokens_decoder"):
        Tokenizer.load(ranked(tmp_path, added=added))


@pytest.mark.parametrize("id", [-1, 1 << 31])
def test_ids_of_control_tokens_that_cannot_be_are_told(tmp_path: Path, id: int) -> None:
    with pytest.raises(CheckpointError, match=f"added_tokens_decoder has the id {id}, which cannot be"):
        Tokenizer.load(ranked(tmp_path, added={str(id): {"content": "\t\t"}}))


def test_ranks_need_a_family_that_knows_how_their_text_is_split(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="how this model splits text into words is not known"):
        Tokenizer.load(TokenizerSpec(ranked(tmp_path).file))
