"""Qwen3-Next and its successors as they lie on disk: what their configurations say, and how their tensors are named."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.blocks import GatedStreams
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.delta import GatedDelta
from colibri.compute.gguf_names import model_type
from colibri.compute.ngrams import Ngrams
from colibri.compute.rope import Rope, rope_for
from colibri.compute.sizes import gated_delta_of

from .gguf import ARCHITECTURES, as_published

#: What a layer mixes positions with, by the words of `layer_types`: whether that is a delta network.
_LAYERS = {"linear_attention": True, "mamba": True, "full_attention": False, "attention": False}

#: Words for attention to selected positions. Some files that mean it say full_attention.
_SELECTING = {"indexed_attention": False, "qwen_sparse_attention": False, "deepseek_sparse_attention": False}


class HybridConfig(Struct, frozen=True):
    """The numbers of the forward pass. Names of tensors begin with `root`. Layer i mixes positions by a delta network where
    `linear[i]`, by attention elsewhere; it has experts where `sparse[i]`, which lie in `fused` tensors or one by one.
    `unit`: norms multiply by 1 + weight, but for the one within the delta network."""

    root: str
    linear: tuple[bool, ...]
    sparse: tuple[bool, ...]
    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope
    delta: GatedDelta
    experts: int
    top_k: int
    norm_topk: bool
    fused: bool
    vocab: int
    eps: float
    unit: bool
    tied: bool
    context: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> HybridConfig:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        whole = as_published(checkpoint)
        return _hybrid(checkpoint, whole, whole.text())

    @classmethod
    def draft(cls, checkpoint: Checkpoint) -> HybridConfig:
        """The numbers of the draft head: those of a model with one layer. Its experts may be stored in a way of their own.
        Raises CheckpointError naming the file and the key."""
        config, c = as_published(checkpoint).text(), cls.of(checkpoint)
        if config.flag("mtp_use_dedicated_embeddings", False):
            raise config.error("mtp_use_dedicated_embeddings", "is true: heads that share the model's can be computed")
        fused = _fused(checkpoint, "mtp")
        return replace(c, linear=(False,), sparse=(c.experts > 0,), fused=fused)


class Indexer(Struct, frozen=True):
    """The sizes of the indexer: `budget` runs of `every` positions are attended to. `apart`: queries and keys have matrices
    of their own."""

    heads: int
    dim: int
    budget: int
    every: int
    apart: bool


class FlashNextConfig(Struct, frozen=True):
    """The numbers of Qwen3.8-Flash-Next: those of the other hybrids, of its residual streams and its indexer, and of the
    n-grams that the layers in `ngram_layers` add to the streams."""

    base: HybridConfig
    streams: GatedStreams
    indexer: Indexer
    ngram_layers: frozenset[int]
    ngrams: Ngrams

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> FlashNextConfig:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        base = HybridConfig.of(checkpoint)
        config = as_published(checkpoint).text()
        indexer = _indexer(config, base, apart=checkpoint.format == "gguf")
        streams = GatedStreams(config.size("hc_count", 4, least=2, most=64), base.eps, base.unit)
        layers = frozenset(layer - 1 for layer in _numbers(config, "ple_layer_ids", 1, len(base.linear)))  # counted from 1
        return cls(base, streams, indexer, layers, _ngrams(config, base, used=bool(layers)))

    @classmethod
    def draft(cls, checkpoint: Checkpoint) -> FlashNextConfig:
        """The numbers of the draft head (see HybridConfig.draft)."""
        return replace(cls.of(checkpoint), base=HybridConfig.draft(checkpoint))


def _hybrid(checkpoint: Checkpoint, whole: Config, config: Config) -> HybridConfig:
    kind, gguf = model_type(checkpoint, ARCHITECTURES), checkpoint.format == "gguf"
    flash = kind.startswith("qwen4")
    config.only("hidden_act", "silu")
    config.without("attention_bias")
    if not config.flag("attn_output_gate", True):
        raise config.error("attn_output_gate", "is false, the attention of these models has a gate")
    layers = config.size("num_hidden_layers", most=4096)
    heads, kv_heads = config.size("num_attention_heads"), config.size("num_key_value_heads")
    config.split("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    head_dim = config.size("head_dim", 256)
    context = config.size("max_position_embeddings", 32768)
    experts = 0 if kind in ("qwen3_5", "qwen3_5_text") else config.size("num_experts", most=65536)
    eps, joint = config.number("rms_norm_eps", 1e-6), kind == "qwen3_next"
    grouped = joint and (not gguf or checkpoint.has("blk.0.ssm_in."))  # so in GGUF files of the first converters
    root = "model.language_model" if checkpoint.has("model.language_model.") else "model"
    return HybridConfig(
        root=root,
        linear=_linear(config, layers, {**_LAYERS, **_SELECTING} if flash else _LAYERS),
        sparse=_sparse(config, layers) if experts else (False,) * layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope=rope_for(config, head_dim, context, partial=1.0 if flash else 0.25),
        delta=gated_delta_of(config, eps, grouped=grouped, joint=joint, turns=gguf and not joint, log=not gguf),
        experts=experts,
        top_k=config.size("num_experts_per_tok", most=experts) if experts else 0,
        norm_topk=config.flag("norm_topk_prob", True),
        fused=_fused(checkpoint, root),
        vocab=config.size("vocab_size"),
        eps=eps,
        unit=not gguf,
        tied=whole.flag("tie_word_embeddings", config.flag("tie_word_embeddings", False)),
        context=context,
    )


def _fused(checkpoint: Checkpoint, root: str) -> bool:
    """Whether the experts of a layer below `root` lie in two tensors."""
    marks = ".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"
    return any(name.startswith(f"{root}.") and any(mark in name for mark in marks) for name in checkpoint.tensors)


def _linear(config: Config, layers: int, words: dict[str, bool]) -> tuple[bool, ...]:
    found = config.choices("layer_types", layers, words)
    if found is not None:
        return found
    interval = config.size("full_attention_interval", 4)
    return tuple((i + 1) % interval > 0 for i in range(layers))


def _sparse(config: Config, layers: int) -> tuple[bool, ...]:
    step, dense = config.size("decoder_sparse_step", 1), set(_numbers(config, "mlp_only_layers", 0, layers - 1))
    return tuple(i not in dense and (i + 1) % step == 0 for i in range(layers))


def _indexer(config: Config, base: HybridConfig, *, apart: bool) -> Indexer:
    if config.size("indexer_kv_heads", 1) != 1:
        raise config.error("indexer_kv_heads", "must be 1")
    dim, rotated = config.size("indexer_head_dim"), 2 * len(base.rope.inv_freq)
    if dim < rotated:
        raise config.error("indexer_head_dim", f"is {dim}, fewer values than the {rotated} that are rotated")
    every, budget = config.size("indexer_compress_ratio", most=4096), config.size("indexer_budget")
    runs = config.split("indexer_compress_ratio", every, "indexer_budget", budget)
    return Indexer(heads=config.size("indexer_n_heads"), dim=dim, budget=runs, every=every, apart=apart)


def _ngrams(config: Config, base: HybridConfig, *, used: bool) -> Ngrams:
    tables = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
    ends = config.get("eos_token_id")
    if isinstance(ends, list) and ends:
        ends = ends[0]
    if used and (isinstance(ends, bool) or not isinstance(ends, int) or not 0 <= ends < base.vocab):
        raise config.error("eos_token_id", f"must be a token below {base.vocab}: n-grams end at it")
    return Ngrams(
        orders=config.size("ngram_size", 3, least=2, most=16),
        heads=config.size("heads_per_ngram", 8, most=4096),
        parts=config.size("split_ngram_parts", 512, most=65536),
        vocab=base.vocab,
        eos=ends if used else 0,
        kernel=config.size("ple_conv_kernel_size", 4, most=64),
        numbers={key: tuple(_numbers(config, key, 0, 1 << 62)) for key in tables if config.get(key) is not None},
    )


def _numbers(config: Config, key: str, least: int, most: int) -> list[int]:
    """A list of whole numbers from `least` to `most`; empty if absent."""
    found = config.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(type(n) is int and least <= n <= most for n in found):
        raise config.error(key, f"must be a list of whole numbers from {least} to {most}")
    return found
