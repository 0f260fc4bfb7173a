"""Makes draft.{json,npz} in tests/data/inkling: what transformers computes for a small seeded draft head behind the model
that lies there. Needs the `oracle` dependency group.

    python plugins/inkling/tests/make_draft_data.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, InklingForConditionalGeneration
from transformers.masking_utils import LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING, create_sliding_window_causal_mask
from transformers.modeling_layers import MtpModel

from colibri.testing.heads import layer_shapes, store_head

FOLDER = Path(__file__).parent / "data" / "inkling"


def head_shapes(folder: Path) -> dict[str, list[int]]:
    """The shapes of the first layer, which has a window and no experts, and of what turns it into a head."""
    head = "model.mtp.layers.0"
    shapes = layer_shapes(folder, "model.llm.layers.0", f"{head}.transformer_block")
    width = shapes[f"{head}.transformer_block.attn_norm.weight"][0]
    norms = {f"{head}.{name}.weight": [width] for name in ("embed_norm", "hidden_norm")}
    return {**shapes, **norms, f"{head}.input_proj.weight": [width, 2 * width]}


@torch.no_grad()
def reference(folder: Path, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """The head is given embeddings as the model has them, normed, and the window of the model's layers: by itself, this
    implementation would do neither."""
    LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING["hybrid_sliding"]["sliding_attention"] = create_sliding_window_causal_mask
    config = AutoConfig.from_pretrained(folder)
    text = config.get_text_config()
    text.num_mtp_layers, text.mtp_local_layer_ids = 1, [0]
    eager = {"attn_implementation": "eager", "experts_implementation": "eager", "dtype": torch.float32}
    model = InklingForConditionalGeneration.from_pretrained(folder, config=config, **eager).eval()
    head = MtpModel.from_pretrained(model).eval()
    tokens = torch.from_numpy(ids)[None]
    found = model(tokens, output_hidden_states=True)
    hidden, embedded = found.hidden_states[-1][:, :-1], model.get_decoder().embed_tokens(tokens[:, 1:])
    row = head.forward_layer(0, hidden, torch.arange(len(ids) - 1)[None], None, inputs_embeds=embedded)
    return found.logits[0].numpy(), hidden[0].numpy(), head._project_to_logits(row)[0].numpy()


if __name__ == "__main__":
    store_head(FOLDER, head_shapes(FOLDER), reference)
