"""`colibri doctor`: a status of 1 exactly when something needs repair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .test_families import PLUGIN


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
