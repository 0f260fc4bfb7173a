"""What a family's prompts have to be in token ids, proved with the real tokenizer: a test class beside `FamilyConformance`.

    class TestTokens(TokensConformance):
        plugin = colibri_mine
        family = "mine"
        tokens = {"mine-1": DATA / "tokens.json"}

Real tokenizers are too large to lie beside the tests: COLIBRI_TOKENIZERS names a folder that has, for each variant, one of
its name with the files of the tokenizer as they lie beside the weights. `tokens` gives golden data by variant: an object
with `special`, control tokens by their spelling, and `stop`, those that end a turn; `texts`, cases with a `name`, a `text`,
its `ids` and whether it `decodes_to_text` again; and `prompts`, cases with a `name`, a `request` as in `FamilyConformance`
and the `ids` of its prompt. Needs pytest and hypothesis.
"""

from __future__ import annotations

import functools
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
from ..compute.checkpoint import Checkpoint
from ..family import Family
from .conformance import LOOKALIKES, registered

FOLDER = "COLIBRI_TOKENIZERS"


class TokensConformance:
    """Subclass this in a plugin's tests."""

    plugin: ClassVar[Any]
    family: ClassVar[str]
    tokens: ClassVar[Mapping[str, Path]]

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
