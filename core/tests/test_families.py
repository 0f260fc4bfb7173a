"""The families installed, whichever they are: all usable, none in another's way, and told alike everywhere.

nox says which must be there (COLIBRI_TEST_FAMILIES): none beside core alone, all of them together.
"""

from __future__ import annotations

import json
import os
import re
from importlib import metadata
from pathlib import Path

import msgspec
import pytest

from colibri.cli import main
from colibri.cli.families import as_json, as_markdown, as_table
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import PluginError
from colibri.family import FAMILY_API
from colibri.plugins import Plugins, load_plugins
from colibri.settings import Settings


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins(Settings())


def test_the_expected_families_are_there(plugins: Plugins) -> None:
    installed = {entry.name for entry in metadata.entry_points(group="colibri")}
    expected = os.environ.get("COLIBRI_TEST_FAMILIES")
    assert {row.name for row in plugins.families()} == (installed if expected is None else set(expected.split()))
    assert plugins.broken() == ()


def test_names_are_unique_and_written_the_way_users_type(plugins: Plugins) -> None:
    names = [variant.name for row in plugins.families() for variant in row.variants]
    assert len(set(names)) == len(names)
    for row in plugins.families():
        assert row.family.api == FAMILY_API
        assert row.variants
        for variant in row.variants:
            assert variant.name == variant.name.lower().strip()
            assert plugins.variant(variant.name) == (row.family, variant)


def test_the_matrix_is_the_union_of_the_claims(
    plugins: Plugins, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("COLI_")]:
        monkeypatch.delenv(name)
    assert main(["families", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    claimed = [msgspec.to_builtins(variant) for row in plugins.families() for variant in row.variants]
    assert [variant for family in shown["families"] for variant in family["variants"]] == json.loads(json.dumps(claimed))
    assert shown["broken"] == []


# The README shows what the command prints.

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ALL = {path.parent.name for path in (Path(__file__).parents[2] / "plugins").glob("*/pyproject.toml")}


def matrix() -> list[str]:
    [table] = re.findall(r"<!-- matrix\b[^>]*-->\n(.*?)\n<!-- end of matrix -->", README, re.DOTALL)
    return table.splitlines()


def test_the_readme_shows_the_claims_of_the_families_installed(plugins: Plugins) -> None:
    """All of them, or, where a family is not installed, all but its rows. `nox -s matrix` writes the table."""
    missing = [f"| `colibri-{name}` |" for name in ALL - {row.name for row in plugins.families()}]
    expected = [line for line in matrix() if not any(name in line for name in missing)]
    assert as_markdown(plugins).splitlines() == expected


def test_the_readme_leaves_no_plugin_out() -> None:
    assert {name for line in matrix()[2:] for name in re.findall(r"\| `colibri-(\w+)` \|", line)} == ALL


def test_without_a_plugin_only_its_rows_are_gone(plugins: Plugins) -> None:
    for row in plugins.families():
        rest = load_plugins(Settings(disable_plugins=(row.origin.name,)))
        assert rest.broken() == ()
        families = [family for family in as_json(plugins)["families"] if family["name"] != row.name]
        assert as_json(rest) == {"families": families, "broken": []}
        mark = f"| `{row.origin.distribution}` |"
        assert as_markdown(rest).splitlines() == [line for line in as_markdown(plugins).splitlines() if mark not in line]
        if families:
            lines = [line.split() for line in as_table(plugins).splitlines() if line.split()[0] != row.name]
            assert [line.split() for line in as_table(rest).splitlines()] == lines
        for variant in row.variants:
            with pytest.raises(PluginError, match="is installed"):
                rest.variant(variant.name)


# A model without a plugin.

#: The model types of published checkpoints, by the plugin that is for them.
PUBLISHED = {
    "deepseek": ("deepseek_v3", "deepseek_v32", "deepseek_v4", "deepseek_v41"),
    "glm": ("glm4_moe", "glm_moe_dsa", "glm5_next", "glm5_next_text"),
    "inkling": (
        *("inkling_mm_model", "inkling_text", "inkling2", "inkling2_text"),
        *("inkling2_loop", "inkling2_loop_text"),
    ),
    "kimi": ("kimi_k2", "kimi_k25", "kimi_linear", "kimi_k3"),
    "mimo": ("mimo_v2_flash", "mimo_v2"),
    "olmoe": ("olmoe",),
    "qwen": (
        *("qwen2", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        *("qwen4_exp", "qwen4_exp_text"),
    ),
}

#: Those of older models, which the plugins leave alone.
UNSERVED = {"deepseek_v3", "deepseek_v41", "glm4_moe", "kimi_k2", "kimi_k25"}


@pytest.mark.parametrize(
    ("name", "model_type"), [(name, model_type) for name in PUBLISHED for model_type in PUBLISHED[name]]
)
def test_the_plugin_said_to_be_missing_is_the_one_that_serves_the_model(
    plugins: Plugins, name: str, model_type: str
) -> None:
    checkpoint = Checkpoint(Path("/models/m"), "safetensors", {"model_type": model_type}, {}, {})
    with pytest.raises(PluginError) as caught:
        Plugins().family_for(checkpoint)
    assert f"colibri-{name}" in str(caught.value)
    installed = {row.origin.distribution: row for row in plugins.families()}
    row = installed.get(f"colibri-{name}")
    if row is None:
        assert str(caught.value).endswith(f"if there is one, and you trust it, pip install colibri-{name}.")
    elif model_type in UNSERVED:
        with pytest.raises(PluginError, match=f"colibri-{name} is installed, perhaps a later version"):
            plugins.family_for(checkpoint)
    else:
        assert plugins.family_for(checkpoint)[0].name == row.name
        assert f"colibri-{name} is installed but was left out" in str(caught.value)
