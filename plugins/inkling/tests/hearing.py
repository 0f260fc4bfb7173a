"""A model that hears the real bands and levels: the small Inkling with another table, and a vocabulary for it."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np

from colibri.compute.checkpoint import open_checkpoint
from colibri.testing.checkpoints import seeded_weights, write_checkpoint
from colibri.testing.storage import values_of
from colibri_inkling.audio import BANDS, LEVELS
from colibri_inkling.prompt import AUDIO, AUDIO_END, CALL, END, END_SAMPLING, MODEL, SYSTEM, TEXT, THINKING, TOOL, USER
from colibri_inkling.variants import AUDIO_TABLE

DATA = Path(__file__).parent / "data"

#: Words are the bytes of ASCII, then come these, then pairs of letters that no text is encoded as.
SPECIALS = [piece.token for piece in (USER, MODEL, SYSTEM, TOOL, TEXT, THINKING, CALL, AUDIO, AUDIO_END, END, END_SAMPLING)]
VOCAB = 250


def small_config() -> dict[str, Any]:
    """The configuration of tests/data/inkling, which has sounds of four bands of eight levels."""
    config: dict[str, Any] = json.loads((DATA / "inkling" / "config.json").read_text())
    return config


def small_arrays() -> dict[str, np.ndarray]:
    """Its weights."""
    return {tensor.name: values_of(tensor) for tensor in open_checkpoint(DATA / "inkling").tensors.values()}


def write_hearing_model(folder: Path) -> Path:
    """Write the model and its tokenizer.json."""
    config, arrays = small_config(), small_arrays()
    config["audio_config"] |= {"n_mel_bins": BANDS, "mel_vocab_size": LEVELS}
    arrays |= seeded_weights({AUDIO_TABLE: (BANDS * LEVELS, arrays[AUDIO_TABLE].shape[1])}, 1)
    write_checkpoint(folder, config, arrays)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    printable = {byte: chr(byte) for byte in range(0x21, 0x7F)}
    others = iter(range(0x100, 0x200))
    words = {printable.get(byte) or chr(next(others)): byte for byte in range(128)}
    pairs = (first + second for first in "ABCDEFGH" for second in string.ascii_lowercase)
    words |= {next(pairs): id for id in range(128 + len(SPECIALS), VOCAB)}
    data = {
        "version": "1.0",
        "added_tokens": [
            {"id": 128 + n, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False}
            for n, word in enumerate(SPECIALS)
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": words, "merges": []},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")


#: What is asked about a sound: the first one with a clear answer is taken.
QUESTIONS = [f"What is said {word}?" for word in ("here", "there", "now", "first", "last", "twice", "aloud", "softly")]


def messages(question: str, sound: str) -> list[dict[str, Any]]:
    """A chat request's messages: a question and a sound in base64."""
    audio = {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}}
    return [{"role": "user", "content": [{"type": "text", "text": question}, audio]}]
