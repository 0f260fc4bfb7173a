"""Makes model.gguf beside the model.safetensors of a small test model, with llama.cpp's own converter; where draft.json
describes a draft head, with that too. Needs the `oracle` dependency group and a checkout of llama.cpp.

    python core/tests/make_gguf.py LLAMA_CPP FOLDER [--config '{"key": value}']

`--config` completes the configuration with what the converter asks for. The files have no vocabulary.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from colibri.testing.checkpoints import seeded_weights


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=json.loads, default={})
    given = parser.parse_args()
    sys.path[:0] = [str(given.llama_cpp), str(given.llama_cpp / "gguf-py")]
    with TemporaryDirectory() as scratch:
        source = prepared(given.folder, Path(scratch), given.config)
        convert(source, given.folder / "model.gguf")


def prepared(folder: Path, scratch: Path, more: dict[str, Any]) -> Path:
    """A copy of the model with its draft head and a completed configuration."""
    weights, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    config.get("text_config", config).update(more)
    if (folder / "draft.json").exists():
        head = json.loads((folder / "draft.json").read_text())
        weights |= {name: torch.from_numpy(w.copy()) for name, w in seeded_weights(head["shapes"], head["seed"]).items()}
        config.get("text_config", config).update(num_nextn_predict_layers=1, mtp_num_hidden_layers=1)
    save_file(weights, scratch / "model.safetensors", metadata={"format": "pt"})
    (scratch / "config.json").write_text(json.dumps(config))
    return scratch


def convert(source: Path, target: Path) -> None:
    from conversion import get_model_class
    from conversion.base import ModelBase, ModelType, get_model_architecture, gguf

    # As the file says it: transformers' classes would bring it into their own words.
    config = json.loads((source / "config.json").read_text())
    found = get_model_class(get_model_architecture(config, ModelType.TEXT))
    drafting = bool(config.get("text_config", config).get("num_nextn_predict_layers"))

    class Converter(found):  # type: ignore[misc, valid-type]
        model_arch = found.model_arch
        no_mtp = not drafting

        def set_vocab(self) -> None:
            self.gguf_writer.add_tokenizer_model("none")

        def _write_mxfp4_expert_tensor(self, layer: int, name: str, key: Any) -> list[str]:
            """Experts of small models are not quantised."""
            names = [f"layers.{layer}.ffn.experts.{e}.{name}.weight" for e in range(self.hparams["n_routed_experts"])]
            stacked = np.stack([self.model_tensors[one]().numpy() for one in names])
            self.gguf_writer.add_tensor(self.format_tensor_name(key, layer), stacked)
            return names

    ModelBase.no_mtp = not drafting
    with torch.inference_mode():
        Converter(source, gguf.LlamaFileType.ALL_F32, target, eager=True, hparams=config).write()


if __name__ == "__main__":
    main()
