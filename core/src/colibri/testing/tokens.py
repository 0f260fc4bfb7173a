"""What a family's prompts have to be in token ids, proved with the real tokenizer: a test class beside `FamilyConformance`.

    class TestTokens(TokensConformance):
        plugin = colibri_mine
        family = "mine"
        tokens = {"mine-1": DATA / "tokens.json"}

Real tokenizers are too large to lie beside the tests: COLIBRI_TOKENIZERS names a folder that has, for each variant, one of
its name with the files of the tokenizer as they lie beside the weights. `tokens` gives golden data by variant: an object
with `special`, control tokens by their spelling, and `stop`, those that end a turn; `texts`, cases with a `name`, a `text`,
its `ids` and whether it `decodes_to_text` again; and `prompts`, cases with a `name`, a `request` as in `FamilyConformance`
and the `ids` of its prompt. `gguf` gives by variant the `general.architecture` of its GGUF files and what they call its way
to split text. Needs pytest and hypothesis.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..api.openai.cases import render_case
from ..chat.conversation import TurnOptions
from ..chat.tokenizer import Tokenizer
from ..chat.vocabulary import BYTES
from ..compute.checkpoint import Checkpoint
from ..family import Family
from .checkpoints import write_gguf
from .conformance import LOOKALIKES, registered

FOLDER = "COLIBRI_TOKENIZERS"


class TokensConformance:
    """Subclass this in a plugin's tests."""

    plugin: ClassVar[Any]
    family: ClassVar[str]
    tokens: ClassVar[Mapping[str, Path]]
    gguf: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def test_texts_have_their_ids(self) -> None:
        for name, tokenizer, data in _golden(self):
            for case in data["texts"]:
                ids = tokenizer.encode_text(case["text"])
                assert ids == case["ids"], f"{name}: {case['name']}"
                same = tokenizer.text(ids) == case["text"]
                assert same == case["decodes_to_text"], f"{name}: {case['name']}: decoded"

    def test_control_tokens_and_the_ends_of_turns_have_their_ids(self) -> None:
        family = _family(self)
        variants = {variant.name: variant for variant in family.variants()}
        for name, tokenizer, data in _golden(self):
            found = {token: tokenizer.specials.get(token) for token in data["special"]}
            assert found == data["special"], name
            stops = family.stops(variants[name], TurnOptions())
            ends = {token: tokenizer.specials.get(token) for token in (*stops.specials, *stops.texts)}
            assert ends == data["stop"], name

    def test_prompts_have_their_ids(self) -> None:
        family = _family(self)
        variants = {variant.name: variant for variant in family.variants()}
        for name, tokenizer, data in _golden(self):
            for case in data["prompts"]:
                shown = render_case(family, variants[name], case["request"], tokenizer)
                assert shown["ids"] == case["ids"], f"{name}: {case['name']}"

    def test_the_vocabulary_of_a_gguf_file_gives_the_same_ids(self, tmp_path: Path) -> None:
        golden = {name: (tokenizer, data) for name, tokenizer, data in _golden(self)}
        pairs: list[tuple[Tokenizer, Tokenizer]] = []
        for name, (architecture, label) in self.gguf.items():
            published, data = golden[name]
            file = gguf_vocabulary(Path(os.environ[FOLDER], name), tmp_path / f"{name}.gguf", label)
            checkpoint = Checkpoint(file, "gguf", {}, {"general.architecture": architecture}, {})
            tokenizer = Tokenizer.load(_family(self).tokenizer(checkpoint))
            for case in data["texts"]:
                assert tokenizer.encode_text(case["text"]) == case["ids"], f"{name}: {case['name']}"
            found = {token: tokenizer.specials.get(token) for token in (*data["special"], *data["stop"])}
            assert found == {**data["special"], **data["stop"]}, name

            pairs.append((tokenizer, published))

        @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.data())
        def holds(data: st.DataObject) -> None:
            one, two = data.draw(st.sampled_from(pairs))
            text = data.draw(st.lists(st.sampled_from(LOOKALIKES) | st.text(max_size=6), max_size=8).map("".join))
            assert one.encode_text(text) == two.encode_text(text), text

        if pairs:
            holds()

    def test_text_never_has_the_id_of_a_control_token(self) -> None:
        def check(name: str, tokenizer: Tokenizer, text: str) -> None:
            ids = tokenizer.encode_text(text)
            assert not any(tokenizer.is_control(id) for id in ids), f"{name}: {text!r}"
            assert tokenizer.encode_text(tokenizer.text(ids)) == ids, f"{name}: {text!r}"

        @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.data())
        def holds(data: st.DataObject) -> None:
            name, tokenizer, _ = data.draw(st.sampled_from(golden))
            pieces = st.sampled_from([*tokenizer.specials]) | st.sampled_from(LOOKALIKES) | st.text(max_size=4)
            check(name, tokenizer, data.draw(st.lists(pieces, max_size=6).map("".join)))

        golden = list(_golden(self))
        for name, tokenizer, _ in golden:
            for spelling in tokenizer.specials:
                check(name, tokenizer, spelling)
                check(name, tokenizer, f"a {spelling}{spelling}b")
        holds()


def _golden(test: TokensConformance) -> Iterator[tuple[str, Tokenizer, dict[str, Any]]]:
    for name, file in test.tokens.items():
        yield name, _tokenizer(test.plugin, test.family, name), json.loads(file.read_text(encoding="utf-8"))


def _family(test: TokensConformance) -> Family:
    return registered(test.plugin, test.family)


@functools.cache
def _tokenizer(plugin: Any, family: str, variant: str) -> Tokenizer:
    """The tokenizer of a variant, read as the family reads its model's."""
    folder = os.environ.get(FOLDER)
    if not folder:
        pytest.fail(f"set {FOLDER} to a folder of real tokenizers")
    checkpoint = Checkpoint(Path(folder, variant), "safetensors", {}, {}, {})
    return Tokenizer.load(registered(plugin, family).tokenizer(checkpoint))


def gguf_vocabulary(folder: Path, target: Path, label: str) -> Path:
    """A GGUF file without weights, whose vocabulary is that of the tokenizer in `folder`, as converters write it: the tokens
    by their ids, what each is for, and the pairs of words that are joined, the most frequent first."""
    json_file = folder / "tokenizer.json"
    words, added, merges = _of_json(json_file) if json_file.exists() else _of_ranks(folder)
    tokens = {**{id: (word, 1) for word, id in words.items()}, **added}
    listed = [tokens.get(id, (f"[PAD{id}]", 5)) for id in range(max(tokens) + 1)]
    facts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": label,
        "tokenizer.ggml.tokens": [token for token, _ in listed],
        "tokenizer.ggml.token_type": [kind for _, kind in listed],
        "tokenizer.ggml.merges": merges,
    }
    return write_gguf(target, facts, {})


def _of_json(file: Path) -> tuple[dict[str, int], dict[int, tuple[str, int]], list[str]]:
    data = json.loads(file.read_text(encoding="utf-8"))
    added = {entry["id"]: (entry["content"], 3 if entry["special"] else 4) for entry in data["added_tokens"]}
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in data["model"]["merges"]]
    return data["model"]["vocab"], added, merges


def _of_ranks(folder: Path) -> tuple[dict[str, int], dict[int, tuple[str, int]], list[str]]:
    """A file of ranks has no pairs: those of a word are what it falls into where only words of lower ranks are joined."""
    lines = (folder / "tiktoken.model").read_bytes().splitlines()
    ranks = {base64.b64decode(word): int(rank) for word, rank in (line.split(b" ") for line in lines if line)}
    spelled = {byte: character for character, byte in BYTES.items()}
    words = {"".join(map(spelled.__getitem__, word)): rank for word, rank in ranks.items()}
    merges = []
    for word, rank in sorted(ranks.items(), key=lambda one: one[1]):
        parts = [word[i : i + 1] for i in range(len(word))]
        while len(parts) > 2:
            joined = [ranks.get(a + b, rank) for a, b in itertools.pairwise(parts)]
            at = min(range(len(joined)), key=joined.__getitem__)
            if joined[at] >= rank:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            merges.append(" ".join("".join(map(spelled.__getitem__, part)) for part in parts))
    declared = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["added_tokens_decoder"]
    return words, {int(id): (entry["content"], 3 if entry["special"] else 4) for id, entry in declared.items()}, merges
