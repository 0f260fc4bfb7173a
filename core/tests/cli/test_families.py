"""`colibri families`: the table and the JSON say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from colibri.cli.families import in_words
from colibri.family import Capabilities

PLUGIN = """
from colibri import hookimpl
from colibri.family import Capabilities, Variant

CAN = Capabilities(tools="native", tool_choice="narrow", thinking="optional", efforts=("low", "high"), continuation=True)

class Finch:
    name, api = "finch", 1
    def variants(self): return (Variant("finch-1", "Finch 1", CAN), Variant("finch-base", "Finch base", Capabilities()))
    def variant_for(self, checkpoint): ...
    tokenizer = sampling = render = output = stops = graph = variant_for

@hookimpl
def register_families(register):
    register(Finch())
"""


def test_no_family(colibri: Any) -> None:
    assert colibri("families") == (0, "No family plugin is installed: pip install colibri-<family>\n", "")
    status, out, _ = colibri("families", "--json")
    assert (status, json.loads(out)) == (0, {"families": [], "broken": []})


def test_table_and_json(colibri: Any, tmp_path: Path) -> None:
    good, bad = tmp_path / "finch.py", tmp_path / "bad.py"
    good.write_text(PLUGIN)
    bad.write_text("import nothing_of_the_kind")
    flags = ("--plugin", str(good), "--plugin", str(bad))
    status, out, err = colibri("families", *flags)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["FAMILY", "VARIANT", "MODEL", "FROM", "SUPPORTS"]
    assert lines[1].split(maxsplit=4)[:2] == ["finch", "finch-1"]
    assert lines[1].endswith("tools (required by narrow), thinking (optional: low, high), continuation")
    assert lines[2].endswith("  text")
    assert lines[4] == "Broken:"
    assert lines[5].endswith("ModuleNotFoundError: No module named 'nothing_of_the_kind'")

    status, out, _ = colibri("families", "--json", *flags)
    shown = json.loads(out)
    [family] = shown["families"]
    assert (family["name"], family["plugin"], family["distribution"], family["file"]) == ("finch", "finch", None, str(good))
    assert [variant["name"] for variant in family["variants"]] == ["finch-1", "finch-base"]
    assert family["variants"][0]["capabilities"]["efforts"] == ["low", "high"]
    assert set(family["variants"][1]["capabilities"]) == set(Capabilities.__struct_fields__)
    [broken] = shown["broken"]
    assert (broken["plugin"], broken["reason"]) == ("bad", "ModuleNotFoundError: No module named 'nothing_of_the_kind'")


def test_every_capability_has_words() -> None:
    claims: dict[str, Any] = {
        "tools": "native", "strict_tools": True, "thinking": "always", "preserve": True, "continuation": True,
        "inputs": ("text", "image"), "logprobs": "prompt", "drafts": "mtp", "grammar": True, "decide": True,
        "developer": True,
    }  # fmt: skip
    assert {*claims, "tool_choice", "efforts", "thinks"} == set(Capabilities.__struct_fields__)
    for name, value in claims.items():
        assert in_words(Capabilities(**{name: value})) != in_words(Capabilities()), name
    assert in_words(Capabilities(thinking="optional", thinks=True)) == "thinking (optional, by default)"
    with_choice = Capabilities(tools="fallback", tool_choice="prompt")
    assert in_words(with_choice) == "tools (by prompt, required by prompt)"
