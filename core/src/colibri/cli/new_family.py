"""`colibri new-family`: writes a plugin that serves a small kind of model, for its author to make into another."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from ..errors import PluginError, SettingError
from ..settings import Settings
from .commands import Commands

#: A whole plugin. In its files and their names, `heron` and `Heron` stand for the family and its classes.
TEMPLATE = Path(__file__).parent / "templates" / "family"

#: The longest name with which the lines of the template stay within their limit.
LONGEST = 32

_KINDS = (".py", ".md", ".toml", ".json", ".typed")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add("new-family", run, "write a plugin for another model family, whole and ready to be edited")
    parser.add_argument("name", metavar="NAME", help="the family's name: lower-case letters, digits and _")
    parser.add_argument("--output", metavar="DIR", help="the folder to make (default: colibri-NAME)")


def run(args: argparse.Namespace) -> int:
    """Write the folder and say what to do with it."""
    name: str = args.name
    _check(name)
    folder = Path(args.output or f"colibri-{name}")
    write_family(name, folder)
    print(f"{folder} holds the plugin of the family {name!r}: its README.md says what to edit, in which order.")
    place = folder if folder.is_absolute() else f"./{folder}"  # pip takes a bare word for a name in its index
    print(f'To install it: pip install -e "{place}[test]". To test it: pytest "{place}/tests"')
    return 0


def write_family(name: str, folder: Path) -> None:
    """Write the plugin of a family into a new folder. Raises SettingError if that can't be made."""
    if os.path.lexists(folder):
        raise SettingError(f"{folder} exists already: remove it, or give another folder with --output")
    title = "".join(word.capitalize() for word in name.split("_"))
    try:
        for source in sorted(path for path in TEMPLATE.rglob("*") if path.suffix in _KINDS):
            place = source.relative_to(TEMPLATE)
            if place.parts[0].startswith("."):
                continue  # what a tool has left there
            target = folder / str(place).replace("heron", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text(encoding="utf-8")
            target.write_text(text.replace("heron", name).replace("Heron", title), encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise SettingError(f"{folder} cannot be written ({error.strerror}): give another folder with --output") from None


def _check(name: str) -> None:
    """Raises SettingError for what can't be a package's name, PluginError for a name that is in use."""
    if not _fits(name):
        near = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        raise SettingError(
            f"{name[:60]!r} is no name for a family: take at most {LONGEST} lower-case letters, digits and _, a letter first"
            + (f", such as {near}" if _fits(near) else "")
        )
    from ..plugins import load_plugins

    plugins = load_plugins(Settings())  # all that are installed, whichever are in use
    taken = {row.name: row.origin for row in plugins.rows()}
    for family in plugins.families():
        taken |= dict.fromkeys((family.name, *(variant.name for variant in family.variants)), family.origin.origin)
    if name not in taken and find_spec(f"colibri_{name}") is not None:
        taken[name] = f"the package colibri_{name}"
    if name in taken:
        raise PluginError(f"{name!r} is taken by {taken[name]}: choose another name, or uninstall that one first")


def _fits(name: str) -> bool:
    return len(name) <= LONGEST and re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None
