from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.cli import debug_compute
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.graph import Graph
from colibri.compute.rope import Rope
from colibri.errors import CheckpointError, SettingError
from colibri.family import FAMILY_API, Capabilities, Variant
from colibri.plugins import Plugins
from colibri.settings import Settings
from colibri.testing.checkpoints import seeded_weights, write_checkpoint

SHAPES = {"embed": (8, 4), "qkv": (4, 4), "head": (8, 4)}


class Small:
    """A family of one attention."""

    name = "small"
    api = FAMILY_API

    def variants(self) -> list[Variant]:
        return [Variant("small-1", "Small 1", Capabilities())]

    def variant_for(self, checkpoint: Checkpoint) -> Variant | None:
        return self.variants()[0] if checkpoint.model_type == "small" else None

    def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
        g.context(32)
        x = g.linear(g.embed(g.tokens, g.w("embed")), g.w("qkv"))
        turned = g.rope(x, Rope(4, (1.0, 0.1)))
        g.logits(g.linear(g.attention(turned, turned, x, state=g.kv(0, 1, 4)), g.w("head")))

    def _unused(self, *given: object) -> Any:
        raise AssertionError("logits and plans need no chat")

    tokenizer = sampling = render = output = stops = _unused


@pytest.fixture
def plugins() -> Plugins:
    return Plugins.of(Small())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    model = write_checkpoint(tmp_path / "model", {"model_type": "small"}, seeded_weights(SHAPES, 1))
    return Settings(model=str(model), prefill_chunk=3)


def logits(settings: Settings, plugins: Plugins, *lines: str) -> tuple[int, list[dict[str, Any]]]:
    written: list[str] = []
    status = debug_compute.logits(settings, plugins, lines, written.append)
    assert all("\n" not in line for line in written)
    return status, [json.loads(line) for line in written]


def test_logits_from_a_position_on(settings: Settings, plugins: Plugins) -> None:
    status, (whole, tail, one) = logits(
        settings,
        plugins,
        '{"ids": [1, 2, 3, 4, 5, 6, 7]}\n',
        "\n",
        '{"ids": [1, 2, 3, 4, 5, 6, 7], "from": 5}\n',
        '{"ids": [1]}',
    )
    assert status == 0
    assert (whole["from"], tail["from"]) == (0, 5)
    assert [len(row) for row in whole["logits"]] == [8] * 7
    assert tail["logits"] == whole["logits"][5:]
    assert one["logits"] == whole["logits"][:1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "JSON"),
        ("[]", "object"),
        ("{}", "ids"),
        ('{"ids": []}', "ids: give at least one token"),
        ('{"ids": [1, 8]}', "ids[1]: 8 is no token, they go from 0 to 7"),
        ('{"ids": [-1]}', "ids[0]: -1 is no token"),
        ('{"ids": [1.5]}', "int"),
        ('{"ids": [1], "from": 1}', "from: 1 is no position of 1 tokens"),
        ('{"ids": [1], "from": -1}', "from: -1 is no position"),
        ('{"ids": [1], "form": 0}', "form"),
        (json.dumps({"ids": [1] * 33}), "ids: 33 tokens do not fit the context of 32"),
        ('{"ids": [' + "1" * 30 + "]}", "ids"),
    ],
)
def test_a_case_that_cannot_be_answered_does_not_stop_the_others(
    settings: Settings, plugins: Plugins, line: str, reason: str
) -> None:
    status, (bad, good) = logits(settings, plugins, line, '{"ids": [1]}')
    assert status == 1
    assert list(bad) == ["error"]
    assert reason in bad["error"]
    assert len(good["logits"]) == 1


def test_the_plan_as_text_and_as_json(settings: Settings, plugins: Plugins) -> None:
    written: list[str] = []
    assert debug_compute.graph(settings, plugins, written.append) == 0
    assert "%0 [4] = embed  embed [8, 4] f32" in written
    assert debug_compute.graph(settings, plugins, written.append, as_json=True) == 0
    found = json.loads(written[-1])
    assert found["hash"] in written[0]
    assert found["plan"]["vocab"] == 8
    assert found["types"] == {"embed": "f32", "qkv": "f32", "head": "f32"}


def test_the_plan_of_a_draft_head(settings: Settings) -> None:
    class Drafting(Small):
        def graph(self, checkpoint: Checkpoint, g: Graph) -> None:
            g.context(32)
            g.logits(g.linear(g.hidden(g.embed(g.tokens, g.w("embed"))), g.w("head")))

        def draft(self, checkpoint: Checkpoint, g: Graph) -> bool:
            g.context(32)
            g.logits(g.linear(g.given(4), g.w("head")))
            return True

    written: list[str] = []
    plugins = Plugins.of(Drafting())
    assert debug_compute.graph(settings, plugins, written.append) == 0
    assert written[-2:] == ["hidden %0", "logits %1"]
    assert debug_compute.graph(settings, plugins, written.append, draft=True) == 0
    assert written[-3:] == ["%0 [4] = given", "%1 [8] = linear %0  head [8, 4] f32", "logits %1"]
    with pytest.raises(CheckpointError, match="has no draft head"):
        debug_compute.graph(settings, Plugins.of(Small()), written.append, draft=True)


def test_a_model_that_is_none(tmp_path: Path, plugins: Plugins) -> None:
    for ask in (debug_compute.graph, lambda s, p, w: debug_compute.logits(s, p, [], w)):
        with pytest.raises(SettingError, match="--model"):
            ask(Settings(), plugins, print)
        with pytest.raises(CheckpointError, match="does not exist"):
            ask(Settings(model=str(tmp_path / "absent")), plugins, print)
