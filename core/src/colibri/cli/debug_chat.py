"""The work of `colibri debug render` and `colibri debug parse`: one JSON line in, one JSON line out."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..api.openai.cases import Case, parse_case, render_case
from ..chat.asking import ask
from ..chat.jsontext import dumps
from ..chat.tokenizer import Tokenizer
from ..compute.checkpoint import Checkpoint, open_checkpoint
from ..errors import BadRequest, CheckpointError, ColibriError, PluginError
from ..family import Family, TokenizerSpec
from ..plugins import Plugins

Write = Callable[[str], object]


def render(
    plugins: Plugins, variant_name: str, tokenizer_file: str | None, lines: Iterable[str | bytes], write: Write
) -> int:
    """A chat request per line -> `text`, `pieces` and, with a tokenizer, `ids`; see `render_case`."""
    family, variant = plugins.variant(variant_name)
    tokenizer = _tokenizer(family, tokenizer_file)
    return _each(family, lines, write, lambda case: render_case(family, variant, case, tokenizer))


def parse(
    plugins: Plugins, variant_name: str, tokenizer_file: str | None, lines: Iterable[str | bytes], write: Write
) -> int:
    """An output per line -> `content`, `reasoning`, `tool_calls` and `finish`; see `parse_case`."""
    family, variant = plugins.variant(variant_name)
    tokenizer = _tokenizer(family, tokenizer_file)
    return _each(family, lines, write, lambda case: parse_case(family, variant, case, tokenizer))


def _each(family: Family, lines: Iterable[str | bytes], write: Write, answer: Callable[[Case], dict[str, Any]]) -> int:
    """Answer every line; a line that cannot be answered says why, and the next is read."""
    for text in lines:
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            write(dumps({"error": f"the line cannot be read: {error}"}))
            continue
        try:
            if not isinstance(line, dict):
                raise BadRequest("the line must be a JSON object")
            reply = answer(line)
        except Exception as error:
            reply = {"error": _reason(family, error)}
        write(dumps(reply))
    return 0


def _reason(family: Family, error: Exception) -> str:
    """Why a line cannot be answered. A mistake in the plugin is its author's, who is the one to read this."""
    if isinstance(error, ColibriError) and not isinstance(error, PluginError):
        return str(error)
    if os.environ.get("COLI_DEBUG"):
        raise error
    what = error if isinstance(error, PluginError) else f"family {family.name} failed: {type(error).__name__}: {error}"
    return f"{what} (COLI_DEBUG=1 shows where)"


def _tokenizer(family: Family, file: str | None) -> Tokenizer | None:
    """The tokenizer in `file`, as the family would read it beside a model."""
    if file is None:
        return None
    path = Path(file)
    if path.suffix == ".gguf":
        return Tokenizer.load(_spec(family, open_checkpoint(path)))
    try:
        spec = _spec(family, _beside(path))
    except CheckpointError:
        spec = _renamed(family, path)
    return Tokenizer.load(replace(spec, file=file))


def _spec(family: Family, checkpoint: Checkpoint) -> TokenizerSpec:
    return ask(family, lambda family: family.tokenizer(checkpoint), TokenizerSpec)


def _beside(file: Path) -> Checkpoint:
    return Checkpoint(file.parent, "safetensors", {}, {}, {})


def _renamed(family: Family, file: Path) -> TokenizerSpec:
    """What the family says about a file that has another name than beside a model."""
    with tempfile.TemporaryDirectory() as folder:
        usual = Path(folder, "tokenizer.json")
        try:
            shutil.copyfile(file, usual)
        except OSError as error:
            raise CheckpointError(f"cannot be read: {error.strerror}", file=file) from None
        try:
            return _spec(family, _beside(usual))
        except CheckpointError:
            return TokenizerSpec(str(file))
