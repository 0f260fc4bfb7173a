"""Makes tests/data/audio/*.npz: what transformers computes for sounds among tokens. Needs the `oracle` dependency group.

python plugins/inkling/tests/make_hearing_data.py
"""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from hearing import DATA, QUESTIONS, messages, small_config, write_hearing_model
from transformers import InklingForConditionalGeneration

from colibri.api.openai.messages import decode_messages
from colibri.chat.conversation import Conversation, TurnOptions
from colibri.chat.tokenizer import Tokenizer
from colibri.family import TokenizerSpec
from colibri_inkling import Inkling

#: Tokens of an answer, and how much likelier each must be than the next best, so that rounding decides nothing.
COUNT, MARGIN = 10, 0.05


def model_of(folder: Path) -> InklingForConditionalGeneration:
    eager = {"attn_implementation": "eager", "experts_implementation": "eager", "dtype": torch.float32}
    return InklingForConditionalGeneration.from_pretrained(folder, **eager).eval()


def logits_of(model: InklingForConditionalGeneration, ids: list[int], levels: np.ndarray) -> np.ndarray:
    return model(input_ids=torch.tensor(ids)[None], audio_input_ids=torch.tensor(levels)[None]).logits[0].numpy()


def small() -> None:
    """The model of tests/data/inkling, whose sounds have four bands of eight levels."""
    rng = np.random.default_rng(5)
    levels = rng.integers(0, 8, (9, 4))
    mark = small_config()["audio_token_id"]
    ids = [*rng.integers(4, 240, 6).tolist(), *[mark] * len(levels), *rng.integers(4, 240, 8).tolist()]
    logits = logits_of(model_of(DATA / "inkling"), ids, levels)
    np.savez_compressed(DATA / "audio" / "small.npz", ids=ids, levels=levels, logits=logits)


def chat() -> None:
    """A request with a question and a sound, and the answer."""
    with tempfile.TemporaryDirectory() as name:
        folder = write_hearing_model(Path(name))
        model, tokenizer = model_of(folder), Tokenizer.load(TokenizerSpec(str(folder / "tokenizer.json")))
        mark = small_config()["audio_token_id"]
    heard = json.loads((DATA / "audio" / "levels.json").read_text())["voice"]
    levels = np.array([[int(level, 16) for level in frame] for frame in heard])
    sound = base64.b64encode((DATA / "audio" / "voice.wav").read_bytes()).decode()
    family = Inkling()
    for question in QUESTIONS:
        turns = decode_messages(messages(question, sound))
        prompt = family.render(family.variants()[0], Conversation(turns), TurnOptions(thinking=False))
        ids = tokenizer.encode(prompt, media={0: [mark] * len(levels)})
        rows: list[np.ndarray] = []
        while len(rows) < COUNT:
            rows.append(logits_of(model, ids, levels)[-1])
            ids.append(int(rows[-1].argmax()))
        margins = [float(np.diff(np.sort(row)[-2:])[0]) for row in rows]
        answer, ids = ids[-COUNT:], ids[:-COUNT]
        if min(margins) > MARGIN and not any(map(tokenizer.is_control, answer)):
            break
    else:
        raise SystemExit("every answer is close to another one, or has control tokens")
    print(f"{question!r} -> {answer}, margin {min(margins):.2f}")
    found = {"question": question, "ids": ids, "mark": mark, "logits": rows[0], "answer": answer}
    np.savez_compressed(DATA / "audio" / "chat.npz", **found)


if __name__ == "__main__":
    with torch.no_grad():
        small()
        chat()
