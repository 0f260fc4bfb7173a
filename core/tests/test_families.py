"""The families installed, whichever they are: all usable, none in another's way, and told alike everywhere.

nox says which must be there (COLIBRI_TEST_FAMILIES): none beside core alone, all of them together.
"""

from __future__ import annotations

import json
import os
from importlib import metadata

import msgspec
import pytest

from colibri.cli import main
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
