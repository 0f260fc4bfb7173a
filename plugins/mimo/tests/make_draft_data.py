"""Makes draft.{json,npz} for models in tests/data: what transformers computes for a small seeded draft head behind the model
that lies there. Needs the `oracle` dependency group.

    python plugins/mimo/tests/make_draft_data.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, MiMoV2FlashForCausalLM
from transformers.modeling_layers import MtpModel

from colibri.testing.heads import layer_shapes, store_head

DATA = Path(__file__).parent / "data"
#: What a draft head is made of in this implementation.
HEAD = {"num_mtp_layers": 1, "mtp_layer_types": ["sliding_attention"], "mtp_mlp_layer_types": ["dense"]}
#: The names of a head's tensors, and what this implementation expects in their place.
NAMES = {
    "model.mtp.layers.0.": "model.layers.5.",
    "pre_mlp_layernorm": "post_attention_layernorm",
    "final_layernorm": "shared_head.norm",
}
#: Of a layer with a window: rows of q, k and v in one shard of two.
SHARD = [2 * 24, 2 * 24, 2 * 16]


def head_shapes(folder: Path) -> dict[str, list[int]]:
    """The shapes of the attention of the last layer, which has a window, of the feed-forward block of the first, which has
    no experts, and of the norms and the matrix that turn them into a head."""
    head = "model.mtp.layers.0"
    shapes = layer_shapes(folder, "model.layers.4.self_attn", f"{head}.self_attn")
    shapes.update(layer_shapes(folder, "model.layers.0.mlp", f"{head}.mlp"))
    width = shapes[f"{head}.mlp.up_proj.weight"][1]
    for name in ("enorm", "hnorm", "input_layernorm", "pre_mlp_layernorm", "final_layernorm"):
        shapes[f"{head}.{name}.weight"] = [width]
    return {**shapes, f"{head}.eh_proj.weight": [width, 2 * width]}


def renamed(name: str) -> str:
    for published, own in NAMES.items():
        name = name.replace(published, own)
    return name


def in_three(tensors: dict[str, torch.Tensor], full: set[str]) -> dict[str, torch.Tensor]:
    """q, k and v each in one matrix; layers in `full` have half as many keys and values."""
    found = {}
    for name, tensor in tensors.items():
        stem, fused, _ = name.partition("qkv_proj")
        if not fused:
            found[name] = tensor
            continue
        q, *kv = SHARD
        rows = [q, *(n // 2 for n in kv)] if stem in full else SHARD
        for letter, parts in zip("qkv", zip(*(shard.split(rows) for shard in tensor.chunk(2)), strict=True), strict=True):
            found[f"{stem}{letter}_proj.weight"] = torch.cat(parts)
    return found


@torch.no_grad()
def reference(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """Both models have the sizes of the one that is stored as this implementation has it."""
    config = AutoConfig.from_pretrained(DATA / "mimo_v2_flash")
    for key, value in HEAD.items():
        setattr(config, key, value)
    full = {f"model.layers.{i}.self_attn." for i, kind in enumerate(config.layer_types) if kind == "full_attention"}
    tensors = {renamed(name): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(in_three(tensors, full), folder / "model.safetensors", metadata={"format": "pt"})
    MiMoV2FlashForCausalLM._keys_to_ignore_on_load_unexpected = [r"model\.layers\.5\."]
    model = MiMoV2FlashForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager")
    head = MtpModel.from_pretrained(model.eval()).eval()
    tokens = torch.from_numpy(ids)[None]
    found = model(tokens, output_hidden_states=True)
    hidden = found.hidden_states[-1][:, :-1]
    row = head.forward_layer(0, hidden, torch.arange(1, len(ids))[None], None, input_ids=tokens[:, 1:])
    return found.logits[0].numpy(), hidden[0].numpy(), head._project_to_logits(row)[0].numpy()


if __name__ == "__main__":
    for name in ("mimo_v2", "mimo_v2_flash"):
        store_head(DATA / name, head_shapes(DATA / name), reference)
