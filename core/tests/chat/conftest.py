"""A small byte-level vocabulary, trained here, as tokenizer.json and as GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

from colibri.chat.tokenizer import Tokenizer
from colibri.family import TokenizerSpec
from colibri.testing.checkpoints import write_gguf

SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CORPUS = [
    "The quick brown fox <call> jumps over <|end|> and </call> again.",
    "über die Straße 你好 世界 🌧️",
    "{'a': 1}   \n\n",
] * 20
SPECIAL = ("<|end|>", "<|start|>")
ADDED = ("<call>", "</call>", "  ", "   ")


@pytest.fixture(scope="session")
def library() -> Library:
    """The vocabulary as the tokenizers library runs it, control tokens recognised."""
    library = Library(BPE())
    library.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    library.decoder = Decoder()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(CORPUS, BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False))
    library.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    library.add_tokens([AddedToken(token, normalized=False) for token in ADDED])
    start = ("<|start|>", library.token_to_id("<|start|>"))
    library.post_processor = TemplateProcessing(single="<|start|> $A", special_tokens=[start])
    return library


@pytest.fixture(scope="session")
def tokenizer_json(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    library.save(str(file))
    return file


@pytest.fixture(scope="session")
def metadata(library: Library) -> dict[str, Any]:
    """The vocabulary as GGUF writes it."""
    data = json.loads(library.to_str())
    tokens = [library.id_to_token(id) or "" for id in range(library.get_vocab_size())]
    types = [3 if token in SPECIAL else 4 if token in ADDED else 1 for token in tokens]
    return {
        "general.architecture": "none",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "mine",
        "tokenizer.ggml.tokens": [*tokens, "[PAD]"],
        "tokenizer.ggml.token_type": [*types, 5],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in data["model"]["merges"]],
    }


@pytest.fixture(scope="session")
def tokenizer_gguf(metadata: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("tokenizer") / "model.gguf", metadata, {})


@pytest.fixture(scope="session", params=["json", "gguf"])
def tokenizer(request: pytest.FixtureRequest, tokenizer_json: Path, tokenizer_gguf: Path) -> Tokenizer:
    if request.param == "json":
        return Tokenizer.load(TokenizerSpec(str(tokenizer_json)))
    return Tokenizer.load(TokenizerSpec(str(tokenizer_gguf), splits={"mine": SPLIT}, nfc=True))
