"""Makes tests/data/glm_moe_dsa/draft.{json,npz}: what transformers computes for a small seeded draft head behind the model
that lies there. Needs the `oracle` dependency group.

    python plugins/glm/tests/make_draft_data.py

Only the head's shapes, seed and reference results are stored: its weights follow (colibri.testing).
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, GlmMoeDsaForCausalLM
from transformers.modeling_layers import MtpModel

from colibri.testing.checkpoints import seeded_weights

FOLDER = Path(__file__).parent / "data" / "glm_moe_dsa"
SEED = 0
#: What a draft head is made of in this implementation; a configuration of GLM's names none of it.
HEAD = {"num_mtp_layers": 1, "mtp_layer_types": ["indexed_attention"], "mtp_mlp_layer_types": ["sparse"]}


def main() -> None:
    weights = load_file(FOLDER / "model.safetensors")
    layers = json.loads((FOLDER / "config.json").read_text())["num_hidden_layers"]
    shapes = head_shapes(weights, layers)
    head = {name: torch.from_numpy(value.copy()) for name, value in seeded_weights(shapes, SEED).items()}
    with TemporaryDirectory() as folder:
        save_file({**weights, **head}, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        (Path(folder) / "generation_config.json").write_text("{}")
        config = AutoConfig.from_pretrained(FOLDER)
        for key, value in HEAD.items():
            setattr(config, key, value)
        GlmMoeDsaForCausalLM._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{layers}\."]
        model = GlmMoeDsaForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager")
        found = reference(model.eval(), MtpModel.from_pretrained(model).eval())
    (FOLDER / "draft.json").write_text(json.dumps({"seed": SEED, "shapes": shapes}) + "\n", encoding="utf-8")
    np.savez_compressed(FOLDER / "draft.npz", **found)
    print(f"logits spread {found['draft_logits'].std():.2f}")


def head_shapes(weights: dict[str, torch.Tensor], layers: int) -> dict[str, list[int]]:
    """The shapes of a layer behind the last one, and of what turns it into a head."""
    last = f"model.layers.{layers - 1}."
    shapes = {
        f"model.layers.{layers}.{name.removeprefix(last)}": list(w.shape) for name, w in weights.items() if last in name
    }
    hidden = weights["model.norm.weight"].shape[0]
    for name in ("enorm", "hnorm", "shared_head.norm"):
        shapes[f"model.layers.{layers}.{name}.weight"] = [hidden]
    return {**shapes, f"model.layers.{layers}.eh_proj.weight": [hidden, 2 * hidden]}


@torch.no_grad()
def reference(model: Any, head: Any) -> dict[str, np.ndarray]:
    """The model's hidden rows for the prompt of reference.npz, and the head's logits for the token after the next."""
    with np.load(FOLDER / "reference.npz") as stored:
        ids, expected = torch.from_numpy(stored["prompt_ids"])[None], stored["logits_full"]
    found = model(ids, output_hidden_states=True)
    assert np.abs(found.logits[0].numpy() - expected).max() < 1e-4
    head.config.layer_types = None  # a plain causal mask
    block = head.layers[0].mtp_block.forward
    head.layers[0].mtp_block.forward = lambda *args, **options: block(*args, **options)[0]  # without the chosen positions
    hidden = found.hidden_states[-1][:, :-1]
    positions = torch.arange(1, ids.shape[1])[None]
    row = head.forward_layer(0, hidden, positions, None, input_ids=ids[:, 1:])
    return {"draft_hidden": hidden[0].numpy(), "draft_logits": head._project_to_logits(row)[0].numpy()}


if __name__ == "__main__":
    main()
