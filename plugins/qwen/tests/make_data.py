"""Makes tests/data: what transformers computes for small seeded Qwen2 models. Needs the `oracle` dependency group.

    python plugins/qwen/tests/make_data.py

Only configurations, shapes, seeds and reference results are stored: the weights follow (colibri.testing).
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from colibri.testing.checkpoints import seeded_weights

DATA = Path(__file__).parent / "data"
BASE = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
}
WINDOW = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
CASES: dict[str, dict[str, Any]] = {
    "tied": {**BASE, "tie_word_embeddings": True},
    "untied": BASE,
    "window": {**BASE, **WINDOW, "num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 96},
    "yarn": {**BASE, "rope_scaling": YARN},
}


def main() -> None:
    for name, config in CASES.items():
        model = Qwen2ForCausalLM(Qwen2Config(**config)).eval().float()
        shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
        if config["tie_word_embeddings"]:
            del shapes["lm_head.weight"]
        for seed in count():
            weights = {key: torch.from_numpy(value.copy()) for key, value in seeded_weights(shapes, seed).items()}
            missing = model.load_state_dict(weights, strict=False).missing_keys
            assert missing in ([], ["lm_head.weight"])
            model.tie_weights()
            found = reference(model, seed)
            top = np.sort(found["greedy_logits"], axis=-1)
            gap = float((top[:, -1] - top[:, -2]).min())
            if gap > 0.02:  # no greedy choice is nearly a tie
                break
        print(f"{name}: seed {seed}, {model.num_parameters()} parameters, logits spread "
              f"{found['logits_full'].std():.2f}, closest greedy choice {gap:.3f}")  # fmt: skip
        folder = DATA / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (folder / "weights.json").write_text(json.dumps({"seed": seed, "shapes": shapes}, indent=1) + "\n", encoding="utf-8")
        np.savez_compressed(folder / "reference.npz", **found)


@torch.no_grad()
def reference(model: Qwen2ForCausalLM, seed: int) -> dict[str, np.ndarray]:
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
