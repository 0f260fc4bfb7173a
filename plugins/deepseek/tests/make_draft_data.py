"""Makes draft.{json,npz} for models in tests/data: what transformers computes for a small seeded draft head behind the model
that lies there. Needs the `oracle` dependency group.

    python plugins/deepseek/tests/make_draft_data.py
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn.functional import linear, rms_norm
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, DeepseekV4ForCausalLM
from transformers.masking_utils import create_sliding_window_causal_mask
from transformers.modeling_layers import MtpModel

from colibri.testing.heads import layer_shapes, store_head

DATA = Path(__file__).parent / "data"
#: What a draft head is made of in this implementation; published configurations do not name it all.
HEAD = {"num_mtp_layers": 1, "mtp_layer_types": ["deepseek_sparse_attention"], "mtp_mlp_layer_types": ["sparse"]}


def shapes_v3(folder: Path) -> dict[str, list[int]]:
    """The shapes of the last layer once more, and of what turns it into a head."""
    last = AutoConfig.from_pretrained(folder).num_hidden_layers
    head = f"model.layers.{last}"
    shapes = layer_shapes(folder, f"model.layers.{last - 1}", head)
    width = shapes[f"{head}.input_layernorm.weight"][0]
    for name in ("enorm", "hnorm", "shared_head.norm"):
        shapes[f"{head}.{name}.weight"] = [width]
    return {**shapes, f"{head}.eh_proj.weight": [width, 2 * width]}


@torch.no_grad()
def run_v3(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    config = AutoConfig.from_pretrained(folder)
    for key, value in HEAD.items():
        setattr(config, key, value)
    type_ = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    type_._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{config.num_hidden_layers}\."]
    model = type_.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    head = MtpModel.from_pretrained(model).eval()
    head.config.layer_types = None  # a plain causal mask
    tokens = torch.from_numpy(ids)[None]
    found = model(tokens, output_hidden_states=True)
    hidden = found.hidden_states[-1][:, :-1]
    row = head.forward_layer(0, hidden, torch.arange(1, len(ids))[None], None, input_ids=tokens[:, 1:])
    return found.logits[0].numpy(), hidden[0].numpy(), head._project_to_logits(row)[0].numpy()


def shapes_v4(folder: Path) -> dict[str, list[int]]:
    """The shapes of the first layer, which sees a window only, with a router in place of its table; and of what turns it
    into a head."""
    shapes = layer_shapes(folder, "layers.0", "mtp.0")
    del shapes["mtp.0.ffn.gate.tid2eid"]
    width, streams = shapes["mtp.0.attn_norm.weight"][0], 4
    shapes["mtp.0.ffn.gate.bias"] = shapes["mtp.0.ffn.gate.weight"][:1]
    for name in ("enorm", "hnorm", "norm"):
        shapes[f"mtp.0.{name}.weight"] = [width]
    for name in ("e_proj", "h_proj"):
        shapes[f"mtp.0.{name}.weight"] = [width, width]
    collapse = {"fn": [streams, streams * width], "base": [streams], "scale": [1]}
    return {**shapes, **{f"mtp.0.hc_head_{name}": shape for name, shape in collapse.items()}}


@torch.no_grad()
def run_v4(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """The head's layer is loaded as one more of the model, and what turns it into a head is put around it."""
    config = AutoConfig.from_pretrained(folder)
    last, eps = config.num_hidden_layers, config.rms_norm_eps
    config.num_hidden_layers += 1
    config.layer_types = [*config.layer_types, "sliding_attention"]
    config.mlp_layer_types = [*config.mlp_layer_types, "moe"]
    stored = load_file(folder / "model.safetensors")
    w = {name.removeprefix("mtp.0."): value for name, value in stored.items() if name.startswith("mtp.0.")}
    own = {f"layers.{last}.{name}": value for name, value in w.items() if re.match(r"attn|ffn|hc_attn|hc_ffn", name)}
    model = DeepseekV4ForCausalLM.from_pretrained(None, config=config, state_dict={**stored, **own}, dtype=torch.float32)
    model.set_attn_implementation("eager")
    decoder = model.eval().model
    layer = decoder.layers[last]
    decoder.layers = decoder.layers[:last]
    streams = []
    decoder.hc_head.register_forward_pre_hook(lambda _, given: streams.append(given[0]))
    tokens = torch.from_numpy(ids)[None]
    logits = model(tokens).logits[0].numpy()
    hidden, after = streams.pop()[:, :-1], tokens[:, 1:]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], w[f"{name}.weight"], eps)

    embedded, positions = decoder.embed_tokens(after), torch.arange(after.shape[1])[None]
    x = linear(norm(hidden, "hnorm"), w["h_proj.weight"])
    x = x + linear(norm(embedded, "enorm"), w["e_proj.weight"]).unsqueeze(2)
    turns = {kind: decoder.rotary_emb(embedded, positions, layer_type=kind) for kind in ("main", "compress")}
    mask = create_sliding_window_causal_mask(model.config, embedded, None, None, position_ids=positions)
    x = layer(x, input_ids=after, position_embeddings=turns, position_ids=positions, attention_mask=mask)
    for name in ("fn", "base", "scale"):
        getattr(decoder.hc_head, f"hc_{name}").copy_(w[f"hc_head_{name}"])
    drafted = model.lm_head(norm(decoder.hc_head(x), "norm"))
    return logits, hidden.flatten(2)[0].numpy(), drafted[0].numpy()


if __name__ == "__main__":
    for name in ("deepseek_v3", "deepseek_v32"):
        store_head(DATA / name, shapes_v3(DATA / name), run_v3)
    for name in ("deepseek_v4", "deepseek_v4_hub"):
        store_head(DATA / name, shapes_v4(DATA / name), run_v4)
