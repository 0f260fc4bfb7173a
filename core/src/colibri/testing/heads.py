"""Small draft heads behind small models: reading them for tests, and storing what another implementation makes of them.

Beside a model lie draft.json, with the `shapes` of its head's tensors and the `seed` that their values follow from (see
seeded_weights), and draft.npz (see DraftConformance).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compute.checkpoint import open_checkpoint
from .checkpoints import Arrays, seeded_weights, write_checkpoint
from .storage import values_of

#: What another implementation makes of a model's folder and a prompt [P]: the logits [P, vocab] of the model, its hidden
#: rows [P-1, width] but for the last one, and the head's logits [P-1, vocab] of these and of the token behind each.
Reference = Callable[[Path, NDArray[Any]], tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]


def head_of(folder: Path) -> dict[str, Any]:
    """The `shapes` and the `seed` of the head beside the model in `folder`."""
    head: dict[str, Any] = json.loads((folder / "draft.json").read_text(encoding="utf-8"))
    return head


def write_with_head(source: Path, folder: Path, head: Arrays | None = None, **config: object) -> Path:
    """The model in `source` and its head (or another `head`) as one checkpoint in `folder`; `config` changes some keys of
    its configuration, which may be of the text alone."""
    tensors = open_checkpoint(source).tensors
    # float64 would round the numbers of tables.
    arrays = {
        name: np.array(tensor.numbers()).reshape(tensor.shape) if tensor.dtype == "i64" else values_of(tensor)
        for name, tensor in tensors.items()
    }
    more = seeded_weights(**head_of(source)) if head is None else head
    stored = json.loads((source / "config.json").read_text(encoding="utf-8"))
    stored.get("text_config", stored).update(config)

    def kept(name: str) -> str:
        return tensors[name].dtype if name in tensors else "f32"

    return write_checkpoint(folder, stored, {**arrays, **more}, dtype=kept)


def layer_shapes(folder: Path, layer: str, name: str) -> dict[str, list[int]]:
    """The shapes of what the model in `folder` has below `layer`, by the names that it would have below `name`."""
    tensors = open_checkpoint(folder).tensors
    return {
        f"{name}.{other.removeprefix(f'{layer}.')}": list(tensor.shape)
        for other, tensor in tensors.items()
        if other.startswith(f"{layer}.")
    }


def store_head(folder: Path, shapes: Mapping[str, Sequence[int]], reference: Reference, seed: int = 0) -> None:
    """Write draft.json and draft.npz: a head of these shapes behind the model in `folder`, and what `reference` makes of it
    and of the prompt of reference.npz. Raises ValueError if it makes other logits of the model than are stored there."""
    with np.load(folder / "reference.npz") as stored:
        ids, expected = stored["prompt_ids"], stored["logits_full"]
    with TemporaryDirectory() as written:
        whole = write_with_head(folder, Path(written), seeded_weights(shapes, seed))
        logits, hidden, drafted = reference(whole, ids)
    distance = float(np.abs(logits - expected).max())
    if distance > 1e-4:
        raise ValueError(f"{folder.name}: the model's logits are {distance:.1e} from the stored ones")
    (folder / "draft.json").write_text(json.dumps({"seed": seed, "shapes": shapes}) + "\n", encoding="utf-8")
    np.savez_compressed(folder / "draft.npz", draft_hidden=hidden, draft_logits=drafted)
    print(f"{folder.name}: logits spread {drafted.std():.2f}")
