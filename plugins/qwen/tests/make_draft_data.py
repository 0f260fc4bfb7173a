"""Makes draft.{json,npz} for models in tests/data: what transformers computes for a small seeded draft head behind the model
that lies there. Needs the `oracle` dependency group.

    python plugins/qwen/tests/make_draft_data.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch.nn.functional import linear, rms_norm
from transformers import AutoConfig, Qwen4ExpForConditionalGeneration
from transformers.modeling_layers import MtpModel

from colibri.testing.heads import layer_shapes, store_head

DATA = Path(__file__).parent / "data"
#: What a draft head is made of in this implementation; published configurations do not name it all.
HEAD = {"num_mtp_layers": 1, "mtp_layer_types": ["full_attention"]}
HYBRIDS = {
    "qwen3_next": "model.layers",
    "qwen3_5": "model.language_model.layers",
    "qwen3_5_moe": "model.language_model.layers",
}


def hybrid_shapes(folder: Path, layers: str) -> dict[str, list[int]]:
    """The shapes of the fourth layer, which has attention, and of what turns it into a head."""
    shapes = layer_shapes(folder, f"{layers}.3", "mtp.layers.0")
    width = shapes["mtp.layers.0.input_layernorm.weight"][0]
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        shapes[f"mtp.{name}.weight"] = [width]
    return {**shapes, "mtp.fc.weight": [width, 2 * width]}


@torch.no_grad()
def hybrid(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    config = AutoConfig.from_pretrained(folder)
    for key, value in HEAD.items():
        setattr(config.get_text_config(), key, value)
    type_ = getattr(transformers, config.architectures[0])
    model = type_.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").eval()
    head = MtpModel.from_pretrained(model).eval()
    tokens = torch.from_numpy(ids)[None]
    found = model(tokens, output_hidden_states=True)
    hidden = found.hidden_states[-1][:, :-1]
    row = head.forward_layer(0, hidden, torch.arange(1, len(ids))[None], None, input_ids=tokens[:, 1:])
    return found.logits[0].numpy(), hidden[0].numpy(), head._project_to_logits(row)[0].numpy()


def flash_next_shapes(folder: Path) -> dict[str, list[int]]:
    """The shapes of the fourth layer, which has attention, and of what turns it into a head."""
    root = "model.language_model"
    shapes = layer_shapes(folder, f"{root}.layers.3", "mtp.layers.0")
    shapes.update(layer_shapes(folder, f"{root}.hyper_connection_mixer", "mtp.hyper_connection_mixer"))
    width = shapes["mtp.layers.0.self_attn.q_proj.weight"][1]
    for name in ("fc_embedding", "fc_hidden"):
        shapes[f"mtp.{name}.weight"] = [width, width]
    streams = shapes["mtp.hyper_connection_mixer.hc_norm.weight"]
    return {**shapes, "mtp.pre_fc_norm_embedding.weight": [width], "mtp.pre_fc_norm_hidden.weight": streams}


@torch.no_grad()
def flash_next(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """The head's layer is loaded as one more of the model, which then runs with this layer alone and the head's mixer."""
    config = AutoConfig.from_pretrained(folder)
    text = config.get_text_config()
    last, root = text.num_hidden_layers, "model.language_model"
    text.num_hidden_layers += 1
    text.layer_types = [*text.layer_types, text.layer_types[3]]
    stored = load_file(folder / "model.safetensors")
    own = {name.replace("mtp.layers.0", f"{root}.layers.{last}"): w for name, w in stored.items() if "mtp.layers.0" in name}
    model = Qwen4ExpForConditionalGeneration.from_pretrained(None, config=config, state_dict={**stored, **own})
    model.set_attn_implementation("eager")
    decoder = model.eval().get_decoder()
    *layers, layer = decoder.layers
    decoder.layers, decoder.config.num_hidden_layers = torch.nn.ModuleList(layers), last
    streams = []
    hook = decoder.hyper_connection_mixer.register_forward_pre_hook(lambda _, given: streams.append(given[0]))
    tokens = torch.from_numpy(ids)[None]
    logits = model(tokens, use_cache=False).logits[0].numpy()
    hook.remove()
    hidden, after = streams[0][:, :-1], tokens[:, 1:]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], 1 + stored[f"mtp.{name}.weight"], text.rms_norm_eps)

    token = linear(norm(decoder.embed_tokens(after), "pre_fc_norm_embedding"), stored["mtp.fc_embedding.weight"])
    each = norm(hidden, "pre_fc_norm_hidden").unflatten(-1, (text.hc_count, -1))
    x = (linear(each, stored["mtp.fc_hidden.weight"]) + token.unsqueeze(-2)).flatten(-2)
    decoder.layers, decoder.config.layer_types = torch.nn.ModuleList([layer]), text.layer_types[last:]
    decoder.config.num_hidden_layers, decoder.config.ple_layer_ids = 1, []
    layer.register_forward_pre_hook(lambda _, given: (x, *given[1:]))
    mixer = {name.removeprefix("mtp.hyper_connection_mixer."): w for name, w in stored.items() if "mtp.hyper" in name}
    decoder.hyper_connection_mixer.load_state_dict(mixer)
    return logits, hidden[0].numpy(), model(after, use_cache=False).logits[0].numpy()


if __name__ == "__main__":
    for name, layers in HYBRIDS.items():
        store_head(DATA / name, hybrid_shapes(DATA / name, layers), hybrid)
    store_head(DATA / "qwen4_exp", flash_next_shapes(DATA / "qwen4_exp"), flash_next)
