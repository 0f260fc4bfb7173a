"""What drafts from the request's own text gain: decode speed with and without them, as ratios.

    python core/benchmarks/drafts.py --model PATH [--threads 2] [--pairs 5] [--tokens 200] [--plugin FILE]

One text repeats its prompt (code is to be edited), the other doesn't (a story). With and without drafts take turns, so
that a noisy machine disturbs both alike; answers must be the same, token by token. Printed are the medians of each and the
median, lowest and highest of the per-pair ratios; > 1 is faster with drafts.
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
from pathlib import Path

from colibri.chat.conversation import Conversation, TextPart, Turn, TurnOptions
from colibri.chat.prompt import Special, Text
from colibri.chat.tokenizer import Tokenizer
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import load_runtime
from colibri.compute.runtime import Runtime
from colibri.engine import planner
from colibri.engine.drafts.build import draft_rows, drafts_for
from colibri.engine.drafts.choice import Drafts
from colibri.engine.frames import Done, Submit, Tokens
from colibri.family import Sampling
from colibri.plugins import load_plugins
from colibri.settings import Settings

EDIT = "Rename the method `cancel` to `abandon` in this code, and write out all of it again:\n\n```python\n{code}```"
STORY = "Write a story about a keeper of a lighthouse who finds a letter in a bottle."
CODE = inspect.getsource(planner.Planner)[:2400]


Answer = tuple[list[int], Done]


def answer(runtime: Runtime, prompt: list[int], stops: list[int], count: int, drafts: Drafts | None) -> Answer:
    """The tokens behind a prompt, and how it ended."""
    tokens: list[int] = []
    ended: list[Done] = []

    def emit(frame: object) -> None:
        if isinstance(frame, Tokens):
            tokens.extend(frame.ids)
        elif isinstance(frame, Done):
            ended.append(frame)

    desk = planner.Planner(runtime, emit, chunk=256, drafts=drafts)
    desk.submit(Submit(1, prompt, count, Sampling(), stops))
    while desk.busy:
        desk.step()
    return tokens, ended[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()

    settings = Settings(plugin=tuple(args.plugin))
    checkpoint = open_checkpoint(args.model)
    family, variant = load_plugins(settings).family_for(checkpoint)
    tokenizer = Tokenizer.load(family.tokenizer(checkpoint))
    stops = [tokenizer.specials[name] for name in family.stops(variant, TurnOptions()).specials]
    rows = 256 + settings.kv_slots + draft_rows(settings)
    runtime = load_runtime(family, checkpoint, context=2048, max_rows=rows, threads=args.threads, drafts=settings.mtp)
    drafts = drafts_for(runtime, settings)

    report = {}
    for name, text in {"repeats its prompt": EDIT.format(code=CODE), "does not": STORY}.items():
        turn = Turn("user", (TextPart(text),))
        pieces = family.render(variant, Conversation((turn,)), TurnOptions()).pieces
        prompt: list[int] = []
        for piece in pieces:
            if isinstance(piece, Special):
                prompt.append(tokenizer.specials[piece.token])
            elif isinstance(piece, Text):
                prompt += tokenizer.encode_text(piece.text)
        answer(runtime, prompt, stops, 16, None)  # pages in the weights
        speeds: tuple[list[float], list[float]] = ([], [])
        tally: dict[str, tuple[int, int]] = {}
        for _ in range(args.pairs):
            (plain, without), (drafted, with_drafts) = (
                answer(runtime, prompt, stops, args.tokens, each) for each in (None, drafts)
            )
            assert plain == drafted, "drafts changed the answer"
            tally = with_drafts.drafts
            for speed, done in zip(speeds, (without, with_drafts), strict=True):
                speed.append((len(plain) - 1) / done.decode_seconds)
        ratios = [b / a for a, b in zip(*speeds, strict=True)]
        report[name] = {
            "tokens": len(plain),
            "without_tok_s": round(statistics.median(speeds[0]), 1),
            "with_tok_s": round(statistics.median(speeds[1]), 1),
            "ratio": round(statistics.median(ratios), 2),
            "ratio_min": round(min(ratios), 2),
            "ratio_max": round(max(ratios), 2),
            "drafted_and_right": tally,
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
