"""The models of this family, and how a checkpoint says which it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from colibri.compute.gguf_names import chat_template, model_type
from colibri.errors import CheckpointError
from colibri.family import Capabilities, Variant

from .gguf import ARCHITECTURES

if TYPE_CHECKING:
    from colibri.compute.checkpoint import Checkpoint

_OPTIONAL = Capabilities(
    tools="native",
    tool_choice="narrow",
    strict_tools=True,
    thinking="optional",
    efforts=("high", "max"),
    preserve=True,
    continuation=True,
    drafts="mtp",
)
_ALWAYS = replace(_OPTIONAL, thinking="always", efforts=("low", "high", "max"))

GLM_5_2 = Variant("glm-5.2", "GLM-5.2", _OPTIONAL)
GLM_5_3 = Variant("glm-5.3", "GLM-5.3", _ALWAYS)
GLM_5_3_FLASH = Variant("glm-5.3-flash", "GLM-5.3-Flash", _ALWAYS)

VARIANTS = (GLM_5_2, GLM_5_3, GLM_5_3_FLASH)

#: How much of a chat template is looked at, in bytes.
_TEMPLATE = 1 << 20


def variant_of(checkpoint: Checkpoint) -> Variant | None:
    """Which variant a checkpoint is, None if it is not of this family. Raises CheckpointError for a chat template that
    can't be read."""
    kind = model_type(checkpoint, ARCHITECTURES)
    if kind in ("glm5_next", "glm5_next_text"):
        return GLM_5_3_FLASH
    if kind != "glm_moe_dsa":
        return None
    # The configurations of GLM-5 to GLM-5.3 look the same; only the template of 5.3 has a word for a low effort.
    return GLM_5_3 if re.search(r"\blow\b", _template(checkpoint), re.IGNORECASE) else GLM_5_2


def _template(checkpoint: Checkpoint) -> str:
    """The chat template beside the model, or in a GGUF file; "" if there is none."""
    if checkpoint.format == "gguf":
        return chat_template(checkpoint)
    file = checkpoint.path / "chat_template.jinja"
    try:
        with file.open("rb") as stream:
            return stream.read(_TEMPLATE).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", file=file) from None
