"""`colibri families`: the table and the JSON say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from colibri.cli.families import COLUMNS, as_json, as_markdown, as_table
from colibri.family import Capabilities
from colibri.plugins import load_plugins
from colibri.serve.claims import CLAIMS
from colibri.settings import Settings

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
    assert lines[1].endswith(
        "  tools, tool choice (asked for, a named tool alone), thinking (on request: low, high), continuation"
    )
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


MATRIX = f"""\
| model | variant | plugin | inputs | {" | ".join(COLUMNS)} |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| Finch 1 | `finch-1` | `finch` | text | yes | asked for, a named tool alone |  | on request: low, high |  | yes |  |
| Finch base | `finch-base` | `finch` | text |  |  |  |  |  |  |  |
"""


def test_markdown(colibri: Any, tmp_path: Path) -> None:
    file = tmp_path / "finch.py"
    file.write_text(PLUGIN)
    assert colibri("families", "--markdown", "--plugin", str(file)) == (0, MATRIX, "")
    assert colibri("families", "--markdown")[1] == "".join(MATRIX.splitlines(keepends=True)[:2])
    status, out, err = colibri("families", "--markdown", "--json")
    assert (status, out) == (2, "")
    assert "not allowed with" in err


def test_titles_cannot_break_the_markdown(tmp_path: Path) -> None:
    file = tmp_path / "finch.py"
    file.write_text(PLUGIN.replace("Finch base", "Finch | base"))
    last = as_markdown(load_plugins(Settings(plugins=(), plugin=(str(file),)))).splitlines()[-1]
    assert last.startswith("| Finch &#124; base | `finch-base` |")


def test_every_claim_has_a_place_in_the_markdown() -> None:
    shown = [label for labels in COLUMNS.values() for label in labels]
    assert sorted([*shown, "images", "audio"]) == sorted(claim.label for claim in CLAIMS)


def test_without_a_plugin_its_rows_are_gone_and_the_others_unchanged(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.py" for name in ("finch", "wren")}
    for name, file in files.items():
        file.write_text(PLUGIN.replace("finch", name))
    both = load_plugins(Settings(plugins=(), plugin=tuple(map(str, files.values()))))
    for name, file in files.items():
        alone = load_plugins(Settings(plugins=(), plugin=(str(file),)))
        others = [family for family in as_json(both)["families"] if family["name"] == name]
        assert as_json(alone)["families"] == others
        assert as_markdown(alone).splitlines() == [
            line for line in as_markdown(both).splitlines() if f"`{name}" in line or "`" not in line
        ]
        rows = [line.split() for line in as_table(both).splitlines() if line.startswith((name, "FAMILY"))]
        assert [line.split() for line in as_table(alone).splitlines()] == rows
