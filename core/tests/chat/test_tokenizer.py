from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from colibri.chat.prompt import Media, Prompt, Special, Text, prompt
from colibri.chat.tokenizer import Tokenizer
from colibri.errors import CheckpointError, Refusal
from colibri.family import TokenizerSpec
from colibri.testing.checkpoints import write_gguf

CONTROL = ("<|end|>", "<|start|>", "<call>", "</call>")
PLAIN = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=30)
HOSTILE = st.lists(st.sampled_from([*CONTROL, "<", "<|", "  ", "call>", "Ġ", "\ud83d"]) | st.text(max_size=4)).map("".join)


@given(pieces=st.lists(PLAIN | st.sampled_from(CONTROL).map(Special)))
def test_prompts_get_the_ids_the_library_gives_their_text(
    tokenizer: Tokenizer, library: Library, pieces: list[str | Special]
) -> None:
    asked = prompt(pieces)
    assert tokenizer.encode(asked) == library.encode(asked.text, add_special_tokens=False).ids


@given(text=HOSTILE)
def test_text_never_becomes_a_control_token(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_text(text)
    assert not any(tokenizer.is_control(id) for id in ids)
    assert ids == tokenizer.encode(Prompt((Text(text),)))


def test_runs_of_blanks_stay_words(tokenizer: Tokenizer, library: Library) -> None:
    assert tokenizer.encode_text("a  b") == library.encode("a  b", add_special_tokens=False).ids
    assert library.token_to_id("  ") in tokenizer.encode_text("a  b")
    assert set(tokenizer.specials) == set(CONTROL)


def test_control_tokens_are_found_by_their_exact_spelling(tokenizer: Tokenizer, library: Library) -> None:
    assert tokenizer.encode(Prompt((Special("<call>"),))) == [library.token_to_id("<call>")]
    with pytest.raises(CheckpointError, match="no control token '<CALL>'"):
        tokenizer.encode(Prompt((Special("<CALL>"),)))
    with pytest.raises(Refusal):
        tokenizer.encode(Prompt((Media(0),)))
    with pytest.raises(Refusal):
        tokenizer.encode(Prompt((Media(1),)), media={0: [-1]})


def test_media_are_the_ids_that_stand_for_them(tokenizer: Tokenizer) -> None:
    lengths: list[int] = []
    pieces = (Special("<|start|>"), Media(1), Text("<|end|>"), Media(0), Media(1))
    ids = tokenizer.encode(Prompt(pieces), lengths, {0: [], 1: (-7, -8, -7)})
    text = tokenizer.encode_text("<|end|>")
    assert ids == [tokenizer.specials["<|start|>"], -7, -8, -7, *text, -7, -8, -7]
    assert lengths == [1, 4, 4 + len(text), 4 + len(text), 7 + len(text)]


def test_tokens_that_are_no_text_are_told_apart(tokenizer: Tokenizer, library: Library) -> None:
    assert tokenizer.hidden == {library.token_to_id(token) for token in ("<|end|>", "<|start|>")}
    assert tokenizer.token_bytes(library.token_to_id("<call>")) == b"<call>"
    assert tokenizer.token_bytes(10**9) == b""


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_the_bytes_of_tokens_are_the_bytes_of_the_text(tokenizer: Tokenizer, library: Library, text: str) -> None:
    normal = library.normalizer.normalize_str(text)
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode_text(text))) == normal.encode()


def test_lone_surrogates_count_as_the_replacement_character(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_text("a\ud83db") == tokenizer.encode_text("a\ufffdb")


def test_several_threads_may_encode(tokenizer: Tokenizer) -> None:
    texts = [f"The quick brown fox {n} 你好" * 20 for n in range(32)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode_text, texts)) == [tokenizer.encode_text(text) for text in texts]


def test_other_threads_run_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    """Else one long prompt would stall every stream of the server."""
    text = "The quick brown fox, 12345 🌧️ jumps! " * 30_000
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        tokenizer.encode_text(text)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    assert turns > 5


def test_a_family_may_name_control_tokens(tokenizer_json: Path, library: Library) -> None:
    known = library.token_to_id("fox") or 300
    tokenizer = Tokenizer.load(TokenizerSpec(str(tokenizer_json), specials={"<mine>": known}))
    assert tokenizer.encode(Prompt((Special("<mine>"),))) == [known]
    assert tokenizer.is_control(known)
    with pytest.raises(CheckpointError, match="no token 9999, which should be '<mine>'"):
        Tokenizer.load(TokenizerSpec(str(tokenizer_json), specials={"<mine>": 9999}))


def test_a_control_token_in_the_vocabulary_is_not_made_by_merging(tokenizer_json: Path, tmp_path: Path) -> None:
    data = json.loads(tokenizer_json.read_text())
    next_id = max(data["model"]["vocab"].values()) + 1
    data["model"]["vocab"] |= {"<x": 900, "<x>": 901}
    data["model"]["merges"] = [["<", "x"], ["<x", ">"], *data["model"]["merges"]]
    data["added_tokens"] = [{**data["added_tokens"][0], "content": "<x>", "id": 901}]
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(data))
    tokenizer = Tokenizer.load(TokenizerSpec(str(file)))
    assert next_id < 901
    assert 900 in tokenizer.encode_text("<x>")
    assert 901 not in tokenizer.encode_text("<x>")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda d: d.pop("model"), "has no vocabulary"),
        (lambda d: d["model"].pop("vocab"), "has no vocabulary"),
        (lambda d: d["model"].update(type="Unigram"), "holds a Unigram vocabulary"),
        (lambda d: (d.update(pre_tokenizer=None), d.update(decoder=None)), "only byte-level BPE"),
        (lambda d: d["model"].update(merges=5), "malformed tokens or merges"),
        (lambda d: d["model"].update(merges=[["a", "nowhere"]]), "is not a tokenizer"),
        (lambda d: d["model"]["vocab"].update(x="y"), "malformed tokens or merges"),
        (lambda d: d.update(added_tokens=[{"id": 1}]), "malformed tokens or merges"),
        (lambda d: d["pre_tokenizer"].update(pretokenizers=7), "is not a tokenizer"),
    ],
)
def test_a_broken_file_is_named_with_the_reason(tokenizer_json: Path, tmp_path: Path, edit: Any, reason: str) -> None:
    data = json.loads(tokenizer_json.read_text())
    edit(data)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match=reason) as caught:
        Tokenizer.load(TokenizerSpec(str(file)))
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_a_vocabulary_has_to_fit_its_model(tokenizer_json: Path, tmp_path: Path) -> None:
    data = json.loads(tokenizer_json.read_text())
    size = max([*data["model"]["vocab"].values(), *(entry["id"] for entry in data["added_tokens"])]) + 1
    data["added_tokens"].append({**data["added_tokens"][0], "content": "<unlearned>", "id": size})
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(data))
    tokenizer = Tokenizer.load(TokenizerSpec(str(file)))
    tokenizer.check_fits(size)
    with pytest.raises(CheckpointError, match=f"gives '<unlearned>' the id {size}, but the model has {size} tokens"):
        tokenizer.check_fits(size, [size])
    data["model"]["vocab"]["zzz"] = -1
    file.write_text(json.dumps(data))
    with pytest.raises(CheckpointError):
        Tokenizer.load(TokenizerSpec(str(file))).check_fits(size)


def test_a_pipe_is_no_tokenizer_file(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    os.mkfifo(file)
    with pytest.raises(CheckpointError, match="is not a regular file"):
        Tokenizer.load(TokenizerSpec(str(file)))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_tokenizer_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(CheckpointError):
        Tokenizer.load(TokenizerSpec(str(file)))
    with pytest.raises(CheckpointError, match="cannot be read"):
        Tokenizer.load(TokenizerSpec(str(tmp_path / "none.json")))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("model", "llama", "tokenizer.ggml.model is 'llama'"),
        ("pre", "other", "tokenizer.ggml.pre is 'other'"),
        ("pre", 5, "tokenizer.ggml.pre is 5"),
        ("tokens", None, "tokenizer.ggml.tokens is missing"),
        ("tokens", [1, 2], "tokenizer.ggml.tokens is missing or malformed"),
        ("token_type", [1], "token_type does not fit"),
        ("merges", ["a nowhere"], "tokenizer.ggml.merges is malformed"),
    ],
)
def test_broken_gguf_metadata_are_named(metadata: dict[str, Any], tmp_path: Path, key: str, value: Any, reason: str) -> None:
    facts = {**metadata, f"tokenizer.ggml.{key}": value}
    file = write_gguf(tmp_path / "model.gguf", {k: v for k, v in facts.items() if v is not None}, {})
    with pytest.raises(CheckpointError, match=reason):
        Tokenizer.load(TokenizerSpec(str(file), splits={"mine": "a"}))
