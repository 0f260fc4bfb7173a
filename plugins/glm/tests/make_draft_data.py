"""Makes draft.{json,npz} for models in tests/data: what transformers computes for a small seeded draft head behind the model
that lies there. Needs the `oracle` dependency group.

    python plugins/glm/tests/make_draft_data.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn.functional import linear, rms_norm
from transformers import AutoConfig, Glm5NextForConditionalGeneration, GlmMoeDsaForCausalLM
from transformers.modeling_layers import MtpModel

from colibri.testing.heads import layer_shapes, store_head

DATA = Path(__file__).parent / "data"
#: What a draft head is made of in this implementation; a configuration of GLM's names none of it.
HEAD = {"num_mtp_layers": 1, "mtp_layer_types": ["indexed_attention"], "mtp_mlp_layer_types": ["sparse"]}


def head_shapes(folder: Path, layers: str) -> dict[str, list[int]]:
    """The shapes of a layer with an indexer and experts, the last, but for those of its hyper-connections; and of what
    turns it into a head behind the fifth."""
    head = f"{layers}.5"
    shapes = {name: shape for name, shape in layer_shapes(folder, f"{layers}.4", head).items() if ".hc_" not in name}
    width = shapes[f"{head}.input_layernorm.weight"][0]
    for name in ("enorm", "hnorm", "shared_head.norm"):
        shapes[f"{head}.{name}.weight"] = [width]
    return {**shapes, f"{head}.eh_proj.weight": [width, 2 * width]}


@torch.no_grad()
def glm_moe_dsa(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    config = AutoConfig.from_pretrained(folder)
    for key, value in HEAD.items():
        setattr(config, key, value)
    GlmMoeDsaForCausalLM._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{config.num_hidden_layers}\."]
    model = GlmMoeDsaForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    head = MtpModel.from_pretrained(model).eval()
    head.config.layer_types = None  # a plain causal mask
    block = head.layers[0].mtp_block.forward
    head.layers[0].mtp_block.forward = lambda *args, **options: block(*args, **options)[0]  # without the chosen positions
    tokens = torch.from_numpy(ids)[None]
    found = model(tokens, output_hidden_states=True)
    hidden = found.hidden_states[-1][:, :-1]
    row = head.forward_layer(0, hidden, torch.arange(1, len(ids))[None], None, input_ids=tokens[:, 1:])
    return found.logits[0].numpy(), hidden[0].numpy(), head._project_to_logits(row)[0].numpy()


@torch.no_grad()
def glm5_next(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """The head's layer is loaded as one more of the model, but without streams, which this implementation's always have."""
    config = AutoConfig.from_pretrained(folder)
    text = config.get_text_config()
    last = text.num_hidden_layers
    text.num_hidden_layers += 1
    for key, value in {"layer_types": "indexed_attention", "indexer_types": "full", "mlp_layer_types": "sparse"}.items():
        setattr(text, key, [*getattr(text, key), value])
    model = Glm5NextForConditionalGeneration.from_pretrained(folder, config=config, dtype=torch.float32)
    model.set_attn_implementation("eager")
    decoder = model.eval().get_decoder()
    decoder.config.num_hidden_layers = last
    tokens = torch.from_numpy(ids)[None]
    found = model(tokens, output_hidden_states=True)
    hidden = found.hidden_states[-1][:, :-1]
    w = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if f".layers.{last}." in name}
    w = {name.split(f".layers.{last}.")[1]: tensor for name, tensor in w.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], w[f"{name}.weight"], text.rms_norm_eps)

    both = torch.cat([norm(decoder.embed_tokens(tokens[:, 1:]), "enorm"), norm(hidden, "hnorm")], -1)
    layer, x = decoder.layers[last], linear(both, w["eh_proj.weight"])
    x = x + layer.self_attn(layer.input_layernorm(x), attention_mask=torch.ones_like(tokens[:, 1:], dtype=torch.bool))[0]
    x = x + layer.mlp(layer.post_attention_layernorm(x))
    return found.logits[0].numpy(), hidden[0].numpy(), model.lm_head(norm(x, "shared_head.norm"))[0].numpy()


if __name__ == "__main__":
    for name, layers, reference in (
        ("glm_moe_dsa", "model.layers", glm_moe_dsa),
        ("glm5_next", "model.language_model.layers", glm5_next),
    ):
        shapes = head_shapes(DATA / name, layers)
        store_head(DATA / name, shapes, reference)
