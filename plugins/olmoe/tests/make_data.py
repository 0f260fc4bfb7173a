"""Makes tests/data/shared: what transformers computes for a small seeded OLMoE. Needs the `oracle` dependency group.

    python plugins/olmoe/tests/make_data.py

Unlike the model beside it in tests/data, this one shares key heads among query heads, normalises its experts' weights,
has no limits on q, k and v, and ties its embeddings. Only its configuration, shapes, seed and reference results are stored:
the weights follow (colibri.testing).
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import numpy as np
import torch
from transformers import OlmoeConfig, OlmoeForCausalLM

from colibri.testing.checkpoints import seeded_weights

DATA = Path(__file__).parent / "data"
CONFIG = {
    "model_type": "olmoe",
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 12,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "clip_qkv": None,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def main() -> None:
    model = OlmoeForCausalLM(OlmoeConfig(**CONFIG)).eval().float()
    shapes = published_shapes(model)
    for seed in count():
        weights = {name: torch.from_numpy(value.copy()) for name, value in seeded_weights(shapes, seed).items()}
        missing, unexpected = model.load_state_dict(fused(weights), strict=False)
        assert (missing, unexpected) == (["lm_head.weight"], [])
        model.tie_weights()
        found = reference(model, seed)
        top = np.sort(found["greedy_logits"], axis=-1)
        gap = float((top[:, -1] - top[:, -2]).min())
        if gap > 0.02:  # no greedy choice is nearly a tie
            break
    print(f"seed {seed}, logits spread {found['logits_full'].std():.2f}, closest greedy choice {gap:.3f}")
    folder = DATA / "shared"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", encoding="utf-8")
    (folder / "weights.json").write_text(json.dumps({"seed": seed, "shapes": shapes}) + "\n", encoding="utf-8")
    np.savez_compressed(folder / "reference.npz", **found)


def published_shapes(model: OlmoeForCausalLM) -> dict[str, list[int]]:
    """Shapes by the names of published checkpoints, where every expert has tensors of its own."""
    shapes: dict[str, list[int]] = {}
    for name, value in model.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            stem = name.removesuffix(".gate_up_proj")
            experts, both, width = value.shape
            for e in range(experts):
                shapes[f"{stem}.{e}.gate_proj.weight"] = shapes[f"{stem}.{e}.up_proj.weight"] = [both // 2, width]
                shapes[f"{stem}.{e}.down_proj.weight"] = [width, both // 2]
        elif not name.endswith("experts.down_proj") and name != "lm_head.weight":
            shapes[name] = list(value.shape)
    return shapes


def fused(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights by transformers' names, where all experts of a layer share two tensors."""
    found = {name: value for name, value in weights.items() if ".experts." not in name}
    for i in range(CONFIG["num_hidden_layers"]):
        stem = f"model.layers.{i}.mlp.experts"
        one = [
            {n: weights[f"{stem}.{e}.{n}_proj.weight"] for n in ("gate", "up", "down")} for e in range(CONFIG["num_experts"])
        ]
        found[f"{stem}.gate_up_proj"] = torch.stack([torch.cat([e["gate"], e["up"]]) for e in one])
        found[f"{stem}.down_proj"] = torch.stack([e["down"] for e in one])
    return found


@torch.no_grad()
def reference(model: OlmoeForCausalLM, seed: int) -> dict[str, np.ndarray]:
    """A prompt, the logits at each of its positions, and 16 greedy tokens with the logits that chose them."""
    prompt = np.random.default_rng(seed).integers(0, model.config.vocab_size, 45)
    logits = model(torch.from_numpy(prompt)[None]).logits[0].numpy()
    ids, chosen = prompt.tolist(), []
    for _ in range(16):
        chosen.append(model(torch.tensor([ids])).logits[0, -1].numpy())
        ids.append(int(chosen[-1].argmax()))
    return {
        "prompt_ids": prompt,
        "logits_full": logits,
        "greedy_ids": np.array(ids[len(prompt) :]),
        "greedy_logits": np.stack(chosen),
    }


if __name__ == "__main__":
    main()
