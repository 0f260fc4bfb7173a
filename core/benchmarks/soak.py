"""Hours of use in minutes: mixed requests, many of them given up half way, on servers with one budget after another.

    python core/benchmarks/soak.py --model PATH [--minutes 30] [--rams 0] [--slots 4] [--clients 6] [--plugin FILE]
           [-- flags of serve]

Some prompts are asked again and again, greedily: their answers must be the same every time, whatever ran beside them and
whatever the budget is. The memory of the server's processes is looked at every few seconds; after a while it must stay flat.
Printed is a line for each start, and at the end what was done; the exit status is 1 if an answer drifted, a request failed
for another reason than that the server was full, or memory grew by more than 2%.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException
from typing import Any

import psutil

REFERENCES = ("The quick brown fox", "def fibonacci(n):", "Once upon a time, in a small village", "1, 1, 2, 3, 5, 8,")
WORDS = ("words", "are", "put", "together", "at", "random", "to", "make", "prompts", "which", "nobody", "asked", "before")


class Server:
    """One start of the server."""

    def __init__(self, args: argparse.Namespace, ram: str) -> None:
        command = [sys.executable, "-m", "colibri", "serve", "--model", args.model, "--port", "0", "--ram", ram]
        command += ["--kv-slots", str(args.slots), "--no-kv-save", "--max-queue", "64"]
        command += [part for file in args.plugin for part in ("--plugin", file)] + args.flags
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = 0
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        if not self.port:
            raise SystemExit("the server did not start")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/v1/models")
        self.model = json.load(connection.getresponse())["data"][0]["id"]

    def memory(self) -> int:
        """Private bytes of its processes: what is mapped from files comes and goes as the system likes."""
        processes = [psutil.Process(self.process.pid)]
        processes += processes[0].children(recursive=True)
        return sum(info.rss - info.shared for info in (process.memory_info() for process in processes))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


class Load:
    """Clients that ask until they are told to end."""

    def __init__(self, server: Server, answers: dict[str, str], clients: int, seed: int) -> None:
        self.server, self.answers = server, answers
        self.done = self.given_up = self.refused = 0
        self.faults: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(random.Random(seed + i),)) for i in range(clients)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _client(self, luck: random.Random) -> None:
        while not self._over.is_set():
            try:
                kind = luck.random()
                if kind < 0.3:
                    self._reference(luck.choice(REFERENCES))
                elif kind < 0.6:
                    self._give_up(luck)
                else:
                    self._ask(_prompt(luck), luck.randrange(1, 60), temperature=luck.choice((0, 0.8)))
            except (OSError, HTTPException, KeyError, ValueError) as error:
                self.faults.append(f"{type(error).__name__}: {error}")

    def _reference(self, prompt: str) -> None:
        text = self._ask(prompt, 24, temperature=0)
        if text is not None and self.answers.setdefault(prompt, text) != text:
            self.faults.append(f"{prompt!r} was answered by {text!r}, before by {self.answers[prompt]!r}")

    def _ask(self, prompt: str, tokens: int, **how: Any) -> str | None:
        with contextlib.closing(self._send(prompt, tokens, **how)) as connection:
            reply = connection.getresponse()
            body = json.load(reply)
            if reply.status == 429:
                self.refused += 1
                return None
            self.done += 1
            return str(body["choices"][0]["text"])

    def _give_up(self, luck: random.Random) -> None:
        with contextlib.closing(self._send(_prompt(luck), 200, stream=True)) as connection:
            connection.getresponse().read(luck.randrange(1, 4000))
            self.given_up += 1

    def _send(self, prompt: str, tokens: int, **how: Any) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        body = {"model": self.server.model, "prompt": prompt, "max_tokens": tokens, **how}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        return connection


def _prompt(luck: random.Random) -> str:
    return " ".join(luck.choices(WORDS, k=luck.choice((3, 30, 300))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rams", default="0", help="budgets in GB, separated by commas, one start each")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("flags", nargs="*")
    args = parser.parse_args()
    answers: dict[str, str] = {}
    bad = False
    rams = args.rams.split(",")
    for number, ram in enumerate(rams):
        server = Server(args, ram)
        load = Load(server, answers, args.clients, 1000 * number)
        memory: list[int] = []
        end = time.monotonic() + 60 * args.minutes / len(rams)
        while time.monotonic() < end and server.process.poll() is None:
            time.sleep(3)
            memory.append(server.memory())
        load.end()
        server.stop()
        third = max(1, len(memory) // 3)
        before, after = statistics.median(memory[third : 2 * third]), statistics.median(memory[-third:])
        bad |= bool(load.faults) or after > 1.02 * before
        told = f"{load.done} answers, {load.given_up} given up, {load.refused} refused, {len(load.faults)} faults"
        grown = f"memory {before / 1e6:.0f} MB, then {after / 1e6:.0f} ({after / before - 1:+.1%})"
        print(f"--ram {ram}: {told}; {grown}", flush=True)
        for fault in load.faults[:5]:
            print(f"  {fault}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
