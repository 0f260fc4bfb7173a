"""Makes tests/data/audio: three small sounds and what transformers hears in them. Needs the `oracle` dependency group.

python plugins/inkling/tests/make_audio_data.py
"""

from __future__ import annotations

import json
import struct
from inspect import signature
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from transformers.models.inkling.feature_extraction_inkling import InklingFeatureExtractor
from transformers.models.inkling.processing_inkling import InklingProcessor

DATA = Path(__file__).parent / "data" / "audio"
RATE = 16_000

#: How far from the middle between two levels all loudness must be, so that rounding decides nothing.
MARGIN = 1e-4


def voice(rng: np.random.Generator) -> np.ndarray:
    """A buzz that comes and goes, over faint noise: [samples] int16, no whole number of frames long."""
    t = np.arange(13_211) / RATE
    buzz = sum(np.sin(2 * np.pi * n * (140 * t + np.sin(9 * t))) / n for n in range(1, 24))
    sound = 0.2 * np.clip(np.sin(2 * np.pi * 2.7 * t), 0, 1) * buzz + rng.normal(0, 0.002, len(t))
    return np.round(np.clip(sound, -1, 1) * 32767).astype("<i2")


def sweep(rng: np.random.Generator) -> np.ndarray:
    """A rising tone on one side and faint noise on the other: [samples, 2] float32."""
    t = np.arange(5_000) / RATE
    return np.stack([np.sin(2 * np.pi * (200 * t + 9000 * t * t)), rng.normal(0, 0.0005, len(t))], 1).astype("<f4")


def silence(rng: np.random.Generator) -> np.ndarray:
    """Nothing: [samples] int16."""
    return np.zeros(900, "<i2")


def wav(sound: np.ndarray) -> bytes:
    channels = 1 if sound.ndim == 1 else sound.shape[1]
    size = sound.dtype.itemsize
    form = struct.pack("<HHIIHH", 1 if size == 2 else 3, channels, RATE, RATE * channels * size, channels * size, 8 * size)
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", sound.nbytes) + sound.tobytes()
    return b"RIFF" + struct.pack("<I", len(body)) + body


def heard(sound: np.ndarray) -> tuple[np.ndarray, float]:
    """Levels [frames, 80], and how close the nearest loudness comes to the middle between two of them."""
    defaults = {name: value.default for name, value in signature(InklingProcessor.__init__).parameters.items()}
    low, high, levels = (defaults[name] for name in ("dmel_min_value", "dmel_max_value", "num_dmel_bins"))
    centres = torch.linspace(low, high, levels, dtype=torch.float64).to(torch.float32)
    processor = SimpleNamespace(bin_centers=centres, dmel_min_value=low, dmel_max_value=high)
    plain = sound / np.float32(32768) if sound.dtype == np.int16 else sound
    features = InklingFeatureExtractor()(plain, sampling_rate=RATE, return_tensors="pt")["input_features"][0]
    places = ((features.double() - low) / (high - low) * (levels - 1)).numpy()
    margin = float(np.abs(places - np.floor(places) - 0.5).min())
    return InklingProcessor._extract_dmel_bins(processor, features).numpy(), margin


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    for make in (voice, sweep, silence):
        for seed in count():
            sound = make(np.random.default_rng(seed))
            levels, margin = heard(sound)
            if margin > MARGIN:
                break
        print(f"{make.__name__}: seed {seed}, {len(levels)} frames, levels {levels.min()} to {levels.max()}")
        (DATA / f"{make.__name__}.wav").write_bytes(wav(sound))
        found[make.__name__] = ["".join(f"{level:x}" for level in frame) for frame in levels]
    (DATA / "levels.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
