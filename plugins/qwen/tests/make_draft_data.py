"""Makes draft.{json,npz} for models in tests/data: what transformers computes for a small seeded draft head
behind the model that lies there. Needs the `oracle` dependency group.

    python plugins/qwen/tests/make_draft_data.py

Only the head's shapes, seed and reference results are stored: its weights follow (colibri.testing).
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.modeling_layers import MtpModel

from colibri.testing.checkpoints import seeded_weights

DATA = Path(__file__).parent / "data"
SEED = 0
#: What a draft head is made of in this implementation; published configurations do not name it all.
HEAD = {"num_mtp_layers": 1, "mtp_layer_types": ["full_attention"]}
MODELS = ("qwen3_next", "qwen3_5", "qwen3_5_moe")


def main() -> None:
    for name in MODELS:
        make(DATA / name)


def make(source: Path) -> None:
    weights = load_file(source / "model.safetensors")
    shapes = head_shapes(weights)
    head = {name: torch.from_numpy(value.copy()) for name, value in seeded_weights(shapes, SEED).items()}
    with TemporaryDirectory() as folder:
        save_file({**weights, **head}, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        (Path(folder) / "generation_config.json").write_text("{}")
        config = AutoConfig.from_pretrained(source)
        for key, value in HEAD.items():
            setattr(config.get_text_config(), key, value)
        type_ = getattr(transformers, config.architectures[0])
        model = type_.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager")
        found = reference(model.eval(), MtpModel.from_pretrained(model).eval(), source)
    (source / "draft.json").write_text(json.dumps({"seed": SEED, "shapes": shapes}) + "\n", encoding="utf-8")
    np.savez_compressed(source / "draft.npz", **found)
    print(f"{source.name}: logits spread {found['draft_logits'].std():.2f}")


def head_shapes(weights: dict[str, torch.Tensor]) -> dict[str, list[int]]:
    """The shapes of a layer with attention, and of what turns it into a head."""
    last = next(name for name in weights if name.endswith("self_attn.q_proj.weight")).removesuffix("self_attn.q_proj.weight")
    shapes = {f"mtp.layers.0.{name.removeprefix(last)}": list(w.shape) for name, w in weights.items() if last in name}
    hidden = shapes["mtp.layers.0.input_layernorm.weight"][0]
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        shapes[f"mtp.{name}.weight"] = [hidden]
    return {**shapes, "mtp.fc.weight": [hidden, 2 * hidden]}


@torch.no_grad()
def reference(model: Any, head: Any, source: Path) -> dict[str, np.ndarray]:
    """The model's hidden rows for the prompt of reference.npz, and the head's logits for the token after the next."""
    with np.load(source / "reference.npz") as stored:
        ids, expected = torch.from_numpy(stored["prompt_ids"])[None], stored["logits_full"]
    found = model(ids, output_hidden_states=True)
    assert np.abs(found.logits[0].numpy() - expected).max() < 1e-4
    hidden = found.hidden_states[-1][:, :-1]
    positions = torch.arange(1, ids.shape[1])[None]
    row = head.forward_layer(0, hidden, positions, None, input_ids=ids[:, 1:])
    return {"draft_hidden": hidden[0].numpy(), "draft_logits": head._project_to_logits(row)[0].numpy()}


if __name__ == "__main__":
    main()
