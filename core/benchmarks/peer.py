"""Decode and prefill speed side by side with llama.cpp on the same GGUF file, as ratios.

    python core/benchmarks/peer.py --model FILE [--threads 2] [--pairs 5] [--prompt 512] [--tokens 32]

Both models are loaded in this process and take turns (ours, theirs, ours, ...), so that a noisy machine disturbs both
alike. Printed are the medians of each and the median, lowest and highest of the per-pair ratios; > 1 is ours faster.
The other side is PyPI's llama-cpp-python, which is needed here and nowhere else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import load_runtime
from colibri.compute.runtime import Row
from colibri.plugins import load_plugins


class Ours:
    """The native runtime, stepped directly."""

    def __init__(self, model: Path, threads: int, context: int) -> None:
        checkpoint = open_checkpoint(model)
        family, _ = load_plugins().family_for(checkpoint)
        self.runtime = load_runtime(family, checkpoint, context=context, slots=1, max_rows=256, threads=threads)
        self.chunk = self.runtime.max_rows

    def prefill(self, ids: list[int]) -> None:
        for start in range(0, len(ids), self.chunk):
            rows = [Row(token, 0, start + i) for i, token in enumerate(ids[start : start + self.chunk])]
            rows[-1] = Row(rows[-1].token, 0, rows[-1].position, logits=True)
            self.runtime.step(rows)

    def decode(self, ids: list[int], position: int) -> None:
        for i, token in enumerate(ids):
            self.runtime.step([Row(token, 0, position + i, logits=True)])


class Theirs:
    """llama.cpp through its Python binding."""

    def __init__(self, model: Path, threads: int, context: int) -> None:
        from llama_cpp import Llama

        self.llama = Llama(str(model), n_ctx=context, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)

    def prefill(self, ids: list[int]) -> None:
        self.llama.reset()
        self.llama.eval(ids)

    def decode(self, ids: list[int], position: int) -> None:
        for token in ids:
            self.llama.eval([token])


def timed(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()

    context = args.prompt + args.tokens + 16
    sides = (Ours(args.model, args.threads, context), Theirs(args.model, args.threads, context))
    prompt = [1000 + (i * 7919) % 20000 for i in range(args.prompt)]
    answer = [1000 + (i * 104729) % 20000 for i in range(args.tokens)]
    for side in sides:  # page in the weights, start the threads
        side.prefill(prompt[:64])
        side.decode(answer[:2], 64)

    speeds: dict[str, list[list[float]]] = {"prefill": [[], []], "decode": [[], []]}
    for _ in range(args.pairs):
        for which, side in enumerate(sides):
            seconds = timed(lambda side=side: side.prefill(prompt))
            speeds["prefill"][which].append(len(prompt) / seconds)
            seconds = timed(lambda side=side: side.decode(answer, len(prompt)))
            speeds["decode"][which].append(len(answer) / seconds)

    report = {}
    for phase, (ours, theirs) in speeds.items():
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        report[phase] = {
            "ours_tok_s": round(statistics.median(ours), 1),
            "llama_cpp_tok_s": round(statistics.median(theirs), 1),
            "ratio": round(statistics.median(ratios), 2),
            "ratio_min": round(min(ratios), 2),
            "ratio_max": round(max(ratios), 2),
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
