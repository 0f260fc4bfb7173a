"""The shape of the source tree: imports point downwards, and nothing in core or native names a family."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "core" / "src" / "colibri"

#: Room -> the rooms it may import. The modules beside the rooms are everybody's, except that they may import no room.
ROOMS = {
    "compute": set(),
    "chat": {"compute"},
    "engine": {"compute"},
    "serve": {"chat", "engine", "compute"},
    "api": {"serve", "chat", "engine", "compute"},
    "http": {"api", "serve", "chat", "engine", "compute"},
    "cli": {"http", "api", "serve", "chat", "engine", "compute"},
    "testing": {"http", "api", "serve", "chat", "engine", "compute"},
}
FREE = {"__init__", "discovery", "errors", "family", "settings", "hookspecs", "plugins", "_native"}
FAMILIES = ("qwen", "olmoe", "glm", "deepseek", "kimi", "mimo", "inkling")


#: A plugin to begin with: files that are copied, no modules of core.
TEMPLATES = SOURCE / "cli" / "templates"


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if TEMPLATES not in path.parents)


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imports(tree: ast.AST, package: tuple[str, ...], *, types_too: bool) -> Iterator[tuple[str, ...]]:
    """Dotted names a module imports, absolute. `types_too`: also those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if not types_too and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = (*base, *(node.module or "").split(".")) if node.module else base
            yield from ((*stem, alias.name) for alias in node.names)
        else:
            yield from imports(node, package, types_too=types_too)


def rooms_imported(path: Path, *, types_too: bool) -> set[str]:
    package = ("colibri", *path.relative_to(SOURCE).parts[:-1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = imports(tree, package, types_too=types_too)
    return {name[1] for name in found if name[0] == "colibri" and len(name) > 1 and (SOURCE / name[1]).is_dir()}


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ROOMS:
        strays = rooms_imported(path, types_too=True) - ROOMS[room] - {room}
        assert not strays, f"{room} may not import {strays}"
    elif room != "__main__":
        assert room in FREE, "a new module beside the rooms: is it really everybody's?"
        assert not rooms_imported(path, types_too=False)


@pytest.mark.parametrize("path", [path for path in modules() if path.parent.name in ("chat", "compute")], ids=name_of)
def test_chat_and_compute_know_no_loop_and_no_network(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {name[0] for name in imports(tree, (), types_too=True)} & {"asyncio", "http", "socket", "uvloop", "httptools"}


@pytest.mark.parametrize("path", [path for path in modules() if path.parent.name == "api"], ids=name_of)
def test_no_surface_imports_another(path: Path) -> None:
    surfaces = {"openai", "completions", "anthropic", "responses", "systemone"}
    package = ("colibri", *path.relative_to(SOURCE).parts[:-1])
    found = imports(ast.parse(path.read_text(encoding="utf-8")), package, types_too=True)
    named = {name[2] for name in found if name[:2] == ("colibri", "api") and len(name) > 2}
    if path.stem in surfaces:
        assert not (named & surfaces) - {path.stem}


def test_core_and_native_name_no_family() -> None:
    roots = [SOURCE, *(folder for folder in (REPOSITORY / "native/src", REPOSITORY / "native/include") if folder.is_dir())]
    pattern = re.compile("|".join(FAMILIES), re.IGNORECASE)
    named = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for root in roots
        for path in sorted(root.rglob("*"))
        if path.suffix in (".py", ".pyi", ".md", ".toml", ".json", ".h", ".hpp", ".inl", ".cpp", ".txt", ".cmake")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not named


def test_the_scan_sees_an_import_that_points_upwards() -> None:
    lines = ["from ..http import server", "from .. import api", "import colibri.cli.serve"]
    tree = ast.parse("\n".join([*lines, "if TYPE_CHECKING:", "    from ..serve import x"]))
    found = set(imports(tree, ("colibri", "compute"), types_too=False))
    assert found == {("colibri", "http", "server"), ("colibri", "api"), ("colibri", "cli", "serve")}
    assert ("colibri", "serve", "x") in set(imports(tree, ("colibri", "compute"), types_too=True))
