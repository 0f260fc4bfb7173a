"""`colibri new-family`: what it writes is a plugin that passes its own tests, whatever it is called.

That it is typed and in good style is checked by `nox -s lint`, which has the tools for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli

from colibri.cli.new_family import LONGEST, TEMPLATE

FILES = {
    *("README.md", "pyproject.toml"),
    *(f"src/colibri_dodo_1/{name}.py" for name in ("__init__", "variants", "checkpoint", "graph", "prompt", "output")),
    *("src/colibri_dodo_1/py.typed", "tests/test_conformance.py", "tests/test_graph.py"),
    *("tests/data/prompts.json", "tests/data/outputs.json"),
}


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def install(folder: Path, site: Path) -> None:
    """What an installer would write about a plugin, from its pyproject.toml."""
    project = tomli.loads((folder / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    [(name, module)] = project["entry-points"]["colibri"].items()
    (info / "entry_points.txt").write_text(f"[colibri]\n{name} = {module}\n")


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    """What a test imports is gone behind it."""
    yield
    for name in [name for name in sys.modules if name.startswith("colibri_dodo")]:
        del sys.modules[name]


def test_it_writes_a_whole_plugin_under_its_name(colibri: Any, tmp_path: Path) -> None:
    status, out, err = colibri("new-family", "dodo_1")
    assert (status, err) == (0, "")
    assert "README.md says what to edit" in out
    written = files(tmp_path / "colibri-dodo_1")
    assert set(written) == FILES
    assert not [name for name, text in written.items() if "heron" in text.lower()]
    assert "class Dodo1:" in written["src/colibri_dodo_1/__init__.py"]


def test_only_the_name_is_put_into_the_template(colibri: Any, tmp_path: Path) -> None:
    colibri("new-family", "heron", "--output", str(tmp_path / "deep" / "here"))
    for name, text in files(tmp_path / "deep" / "here").items():
        assert text == (TEMPLATE / name).read_text(), name


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["dodo", "a" * LONGEST])
def test_its_own_tests_pass(colibri: Any, tmp_path: Path, name: str) -> None:
    colibri("new-family", name)
    folder = tmp_path / f"colibri-{name}"
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    tests = ["tests"] if name == "dodo" else ["tests/test_conformance.py", "-k", "registers or stops"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *tests],
        cwd=folder, env=env, capture_output=True, text=True, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_it_registers_with_a_model_of_its_own(colibri: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    colibri("new-family", "dodo")
    install(tmp_path / "colibri-dodo", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "colibri-dodo" / "src"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLI_PLUGINS", "dodo")
    status, out, err = colibri("families", "--json")
    assert (status, err) == (0, "")
    [family] = json.loads(out)["families"]
    assert (family["name"], family["distribution"], family["version"]) == ("dodo", "colibri-dodo", "0.1.0")
    assert [variant["name"] for variant in family["variants"]] == ["dodo"]
    assert json.loads(out)["broken"] == []

    assert colibri("new-family", "dodo", "--output", "another")[::2] == (
        2,
        "colibri: 'dodo' is taken by colibri-dodo 0.1.0: choose another name, or uninstall that one first\n",
    )
    assert not (tmp_path / "another").exists()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *(("Dodo", "such as dodo"), ("my-dodo", "such as my_dodo"), ("my dodo", "such as my_dodo")),
        *(("3d", "a letter first"), ("", "a letter first"), ("dödö", "such as d_d"), ("_dodo", "such as dodo")),
        *(("../dodo", "such as dodo"), ("a" * (LONGEST + 1), "a letter first"), ("dodo\n", "such as dodo")),
    ],
)
def test_names_that_no_package_can_have(colibri: Any, tmp_path: Path, name: str, hint: str) -> None:
    status, out, err = colibri("new-family", "--", name)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert f"{hint}\n" in err
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_there_without_being_a_plugin(
    colibri: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colibri_dodo").mkdir()
    (tmp_path / "colibri_dodo" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    status, _, err = colibri("new-family", "dodo")
    assert (status, err) == (
        2,
        "colibri: 'dodo' is taken by the package colibri_dodo: choose another name, or uninstall that one first\n",
    )


def test_nothing_is_overwritten(colibri: Any, tmp_path: Path) -> None:
    (tmp_path / "colibri-dodo").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_text("mine")
    for flags, place in (((), "colibri-dodo"), (("--output", "link"), "link"), (("--output", "file"), "file")):
        status, out, err = colibri("new-family", "dodo", *flags)
        assert (status, out) == (2, "")
        assert err == f"colibri: {place} exists already: remove it, or give another folder with --output\n"
    assert list((tmp_path / "colibri-dodo").iterdir()) == []


def test_a_folder_that_cannot_be_made(colibri: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    status, _, err = colibri("new-family", "dodo", "--output", "file/dodo")
    assert status == 2
    assert err == "colibri: file/dodo cannot be written (Not a directory): give another folder with --output\n"
