"""`colibri debug render --tokenizer FILE` with the real tokenizers: run by `nox -s tokenizers`, every family installed."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from colibri.cli import main

GOLDEN = sorted(Path(__file__).parents[2].glob("plugins/*/tests/data/tokens/*.json"))


@pytest.mark.parametrize("golden", GOLDEN, ids=[file.stem for file in GOLDEN])
def test_prompts_have_their_ids(golden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.environ.get("COLIBRI_TOKENIZERS") or pytest.fail("set COLIBRI_TOKENIZERS to a folder of real tokenizers")
    file = next(path for name in ("tokenizer.json", "tiktoken.model") if (path := Path(folder, golden.stem, name)).exists())
    cases = json.loads(golden.read_text(encoding="utf-8"))["prompts"]
    lines = "".join(json.dumps(case["request"]) + "\n" for case in cases)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert main(["debug", "render", "--variant", golden.stem, "--tokenizer", str(file)]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]
    assert [line.get("ids", line.get("error")) for line in shown] == [case["ids"] for case in cases]
