"""`colibri doctor`: a status of 1 exactly when something needs repair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.identity import identity
from colibri.compute.load import declare
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.runtime import ScriptedRuntime

from ..engine.saving import filled, saved, write
from ..serve.tiny_family import Tiny
from .test_families import PLUGIN

PLUGIN_FILE = Path(__file__).parent.parent / "serve" / "tiny_family.py"


def topics(out: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(out):
        found.setdefault(finding["topic"], []).append(finding)
    return found


def test_what_is_looked_at(colibri: Any, tmp_path: Path) -> None:
    plugin = tmp_path / "finch.py"
    plugin.write_text(PLUGIN)
    status, out, err = colibri("doctor", "--json", "--plugin", str(plugin))
    assert err == ""
    found = topics(out)
    assert set(found) == {"python", "platform", "runtime", "cpu", "memory", "packages", "settings", "plugins", "model"}
    assert found["plugins"] == [{"topic": "plugins", "verdict": "ok", "text": f"finch ({plugin})"}]
    assert "scalar" in found["runtime"][0]["text"]
    assert "plugin (flag --plugin)" in found["settings"][0]["text"]
    assert status == 0


def test_problems_are_named_and_counted(colibri: Any, tmp_path: Path) -> None:
    plugin, model = tmp_path / "finch.py", tmp_path / "model.gguf"
    plugin.write_text(PLUGIN)
    model.write_bytes(b"not a model")
    status, out, _ = colibri("doctor", "--json", "--plugin", str(plugin), "--model", str(model))
    assert status == 1
    [finding] = topics(out)["model"]
    assert finding["verdict"] == "problem"
    assert str(model) in finding["text"]

    status, out, _ = colibri("doctor", "--plugin", str(tmp_path / "missing.py"))
    assert status == 1
    assert any(line.startswith("PROBLEM") and line.endswith("missing.py): no such file") for line in out.splitlines())


def test_bad_settings_are_a_finding(colibri: Any) -> None:
    status, out, _ = colibri("doctor", "--json", "--port", "x")
    assert status == 1
    [finding] = topics(out)["settings"]
    assert finding["text"].startswith("flag --port: expected a whole number")


def test_conversations_that_were_saved_are_counted(colibri: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shapes = {"embed": (40, 16), "q": (16, 16), "k": (16, 16), "v": (16, 16), "o": (16, 16), "head": (40, 16)}
    write_checkpoint(model, {"model_type": "tiny"}, seeded_weights(shapes, 1))
    mine = identity(*declare(Tiny(), open_checkpoint(model)))
    good = saved(filled([1, 2, 3], ScriptedRuntime(identity=mine)), [1, 2, 3])
    for name, data in ((".coli_kv", good), (".coli_kv.1", b"?"), (".coli_kv.2", good), (".coli_kv.5", good)):
        write(model / name, data)
    arguments = ("doctor", "--json", "--plugin", str(PLUGIN_FILE), "--model", str(model), "--kv-slots", "3")
    status, out, _ = colibri(*arguments)
    assert [(finding["verdict"], finding["text"]) for finding in topics(out)["conversations"]] == [
        ("note", f"{model}/.coli_kv.1 is ignored: it is too short for a KV file"),
        ("ok", f"2 saved in {model}"),
    ]
    assert status == 0
    _, out, _ = colibri(*arguments, "--no-kv-save")
    assert topics(out)["conversations"] == [{"topic": "conversations", "verdict": "note", "text": "are not saved (kv_save)"}]
