"""Decode speed of a model that memory does not hold, side by side with llama.cpp under the same limit.

    python core/benchmarks/larger_than_memory.py --model FOLDER --peer FILE --limits 3200,2300,1400 [--pairs 5]
           [--tokens 60] [--warm 60] [--threads 2] [--plugin FILE] [--peer-tokens 10] [--peer-warm 6]

FOLDER is what `colibri convert` made of the GGUF file FILE. Each side runs in a process of its own, in a control group that
holds so many MB, with the page cache dropped before; they take turns. Both read the same uniformly drawn tokens one by one.
Printed for each limit: tokens per second of both, the median, lowest and highest ratio, and of ours the bytes read per miss
in units of an expert, the rate while anything was read, and the peak of what the group took.

It must be root, for the group and the page cache. The other side is PyPI's llama-cpp-python without repacking, which would
double what it takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAME = "colibri-benchmark"


class Group:
    """A control group with a limit of memory, of whichever version the system has."""

    def __init__(self, limit: int) -> None:
        self.old = Path("/sys/fs/cgroup/memory").is_dir()
        self.path = Path("/sys/fs/cgroup/memory" if self.old else "/sys/fs/cgroup") / NAME
        self.path.mkdir(exist_ok=True)
        (self.path / ("memory.limit_in_bytes" if self.old else "memory.max")).write_text(str(limit))

    def join(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> int:
        file = self.path / ("memory.max_usage_in_bytes" if self.old else "memory.peak")
        return int(file.read_text()) if file.exists() else 0

    def close(self) -> None:
        self.path.rmdir()


def ours(args: argparse.Namespace) -> dict[str, Any]:
    from colibri.compute.checkpoint import open_checkpoint
    from colibri.compute.load import load_runtime
    from colibri.compute.runtime import Row
    from colibri.plugins import load_plugins
    from colibri.settings import Settings

    checkpoint = open_checkpoint(args.model)
    family, _ = load_plugins(Settings(plugin=tuple(args.plugin))).family_for(checkpoint)
    begun = time.perf_counter()
    runtime = load_runtime(
        family,
        checkpoint,
        context=args.warm + args.tokens,
        max_rows=16,
        threads=args.threads,
        progress=lambda stage, fraction: None,
    )
    loaded = time.perf_counter() - begun
    picked: list[int] = []

    def run(tokens: list[int], position: int) -> float:
        begun = time.perf_counter()
        for i, token in enumerate(tokens):
            runtime.step([Row(token, 0, position + i, logits=True)])
            logits = runtime.logits(0)
            picked.append(max(range(0, len(logits), 97), key=logits.__getitem__))
        return len(tokens) / (time.perf_counter() - begun)

    tokens = drawn(runtime.vocab, args.warm + args.tokens)
    run(tokens[: args.warm], 0)
    before = runtime.experts.facts() if runtime.experts else None
    speed = run(tokens[args.warm :], args.warm)
    result: dict[str, Any] = {"speed": speed, "loaded": loaded, "picked": picked}
    if runtime.experts and before:
        after = runtime.experts.facts()
        read, missed = after.bytes_read - before.bytes_read, _misses(after) - _misses(before)
        result |= {
            "hits": 1 - missed / (missed + sum(b.hits for b in after.banks) - sum(b.hits for b in before.banks)),
            "part": sum(bank.room for bank in after.banks) / sum(bank.experts for bank in after.banks),
            "per_miss": read / (missed * after.banks[0].expert_bytes) if missed else 0.0,
            "rate": read / (after.reading - before.reading) / 1e9 if missed else 0.0,
        }
    return result


def _misses(facts: Any) -> int:
    return sum(bank.misses for bank in facts.banks)


def theirs(args: argparse.Namespace) -> dict[str, Any]:
    import llama_cpp

    llama_cpp.llama_backend_init()
    model_params = llama_cpp.llama_model_default_params()
    model_params.use_mmap, model_params.use_extra_bufts = True, False
    model = llama_cpp.llama_model_load_from_file(str(args.peer).encode(), model_params)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = max(64, args.peer_warm + args.peer_tokens)
    params.n_threads = params.n_threads_batch = args.threads
    context = llama_cpp.llama_init_from_model(model, params)
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def run(tokens: list[int]) -> float:
        begun = time.perf_counter()
        for token in tokens:
            batch = llama_cpp.llama_batch_get_one((llama_cpp.llama_token * 1)(token), 1)
            if llama_cpp.llama_decode(context, batch):
                raise SystemExit("llama.cpp could not decode")
            llama_cpp.llama_synchronize(context)
        return len(tokens) / (time.perf_counter() - begun)

    tokens = drawn(vocab, args.peer_warm + args.peer_tokens)
    run(tokens[: args.peer_warm])
    return {"speed": run(tokens[args.peer_warm :])}


def drawn(vocab: int, count: int) -> list[int]:
    """The same tokens on both sides."""
    generator = random.Random(1)
    return [generator.randrange(vocab) for _ in range(count)]


def measure(side: str, limit: int) -> dict[str, Any]:
    """One side in a process of its own, within the limit, with nothing in the page cache."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")
    group = Group(limit)
    try:
        child = subprocess.run(
            [sys.executable, *sys.argv, "--side", side], preexec_fn=group.join, stdout=subprocess.PIPE, check=True
        )
        return {**json.loads(child.stdout.splitlines()[-1]), "peak": group.peak()}
    finally:
        group.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--limits", default="3200,2300,1400", help="MB, separated by commas")
    for name, default in (("pairs", 5), ("threads", 2), ("tokens", 60), ("warm", 60), ("peer-tokens", 10), ("peer-warm", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--side", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps((ours if args.side == "ours" else theirs)(args)))
        return

    picked: list[int] | None = None
    for limit in map(int, args.limits.split(",")):
        pairs = [(measure("ours", limit * 10**6), measure("theirs", limit * 10**6)) for _ in range(args.pairs)]
        for mine, _ in pairs:
            picked = picked or mine["picked"]
            assert mine["picked"] == picked, "the output depends on the limit"
        ratios = [mine["speed"] / other["speed"] for mine, other in pairs]
        spread = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{limit} MB: {_middle(pairs, 0, 'speed')} tok/s, llama.cpp {_middle(pairs, 1, 'speed')}; {spread}")
        if "part" in pairs[0][0]:
            facts = {key: statistics.median(mine[key] for mine, _ in pairs) for key in ("part", "hits", "per_miss", "rate")}
            peak = max(mine["peak"] for mine, _ in pairs) / 1e6
            print(f"  {facts['part']:.0%} of the experts in memory, {facts['hits']:.1%} hits, at most {peak:.0f} MB taken,")
            print(f"  {facts['per_miss']:.3f} experts read a miss, {facts['rate']:.2f} GB/s while reading")


def _middle(pairs: list[tuple[dict[str, Any], dict[str, Any]]], side: int, key: str) -> str:
    values = [pair[side][key] for pair in pairs]
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
