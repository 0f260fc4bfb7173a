"""`colibri families`: which plugins are installed, what they serve, and which are broken and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..settings import add_flags
from .commands import Commands, settings_of

if TYPE_CHECKING:
    from ..discovery import PluginRow
    from ..family import Capabilities
    from ..plugins import Plugins


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add("families", run, "list the model families installed and what they support")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_flags(parser, ("plugin", "plugins", "disable_plugins"))


def run(args: argparse.Namespace) -> int:
    """Print a table, or JSON."""
    from ..plugins import load_plugins

    plugins = load_plugins(settings_of(args))
    print(json.dumps(as_json(plugins), indent=2) if args.json else as_table(plugins))
    return 0


def as_json(plugins: Plugins) -> dict[str, Any]:
    """Families with their variants and capabilities, and broken plugins with their reasons."""
    return {
        "families": [
            {
                "name": row.name,
                **_origin(row.origin),
                "variants": [msgspec.to_builtins(variant) for variant in row.variants],
            }
            for row in plugins.families()
        ],
        "broken": [
            {
                "plugin": row.name,
                "distribution": row.distribution,
                "version": row.version,
                "file": row.file,
                "reason": row.error,
            }
            for row in plugins.broken()
        ],
    }


def _origin(row: PluginRow) -> dict[str, Any]:
    return {"plugin": row.name, "distribution": row.distribution, "version": row.version, "file": row.file}


def as_table(plugins: Plugins) -> str:
    """One line a variant."""
    lines = [("FAMILY", "VARIANT", "MODEL", "FROM", "SUPPORTS")]
    for row in plugins.families():
        for variant in row.variants:
            lines.append((row.name, variant.name, variant.title, row.origin.origin, in_words(variant.capabilities)))
    parts = (
        ["\n".join(_aligned(lines))] if len(lines) > 1 else ["No family plugin is installed: pip install colibri-<family>"]
    )
    broken = [(row.name, row.origin, row.error or "") for row in plugins.broken()]
    if broken:
        parts.append("\n".join(["Broken:", *(f"  {line}" for line in _aligned(broken))]))
    return "\n\n".join(parts)


def in_words(capabilities: Capabilities) -> str:
    """What is claimed, shortly: `tools (required by prompt), thinking (optional: low, high), continuation`."""
    said = []
    if capabilities.tools != "none":
        how = [] if capabilities.tools == "native" else ["by prompt"]
        how += [f"required by {capabilities.tool_choice}"] if capabilities.tool_choice != "none" else []
        said.append("tools" + (f" ({', '.join(how)})" if how else ""))
    if capabilities.strict_tools:
        said.append("strict tools")
    if capabilities.thinking != "none":
        efforts = f": {', '.join(capabilities.efforts)}" if capabilities.efforts else ""
        unasked = ", by default" if capabilities.thinks else ""
        said.append(f"thinking ({capabilities.thinking}{unasked}{efforts})")
    if capabilities.preserve:
        said.append("preserved thinking")
    if capabilities.continuation:
        said.append("continuation")
    if capabilities.developer:
        said.append("developer turns")
    said += [kind for kind in capabilities.inputs if kind != "text"]
    if capabilities.logprobs != "none":
        said.append(f"logprobs ({capabilities.logprobs})")
    if capabilities.drafts != "none":
        said.append(f"drafts ({capabilities.drafts})")
    said += ["grammar"] if capabilities.grammar else []
    said += ["decide"] if capabilities.decide else []
    return ", ".join(said) or "text"


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell, the last one ragged."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]) - 1)]
    return ["  ".join([*(f"{cell:{width}}" for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines]
