"""GLM-5 as it lies on disk: the configuration, in the hub's spelling and in that of transformers."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.blocks import Index, Latent, Routing, Streams
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.delta import Delta
from colibri.compute.gguf_names import model_type
from colibri.compute.operations import Glu
from colibri.compute.rope import Rope, rope_for
from colibri.compute.sizes import MOST, dense_layers, index_of, latent_of, routing_of, streams_of

from .gguf import ARCHITECTURES, as_published

#: Words for layers that attend to positions, and for those that keep a memory.
_ATTENTION = {
    **dict.fromkeys(("indexed_attention", "deepseek_sparse_attention", "full_attention", "attention"), "sparse"),
    **dict.fromkeys(("linear_attention", "mamba"), "linear"),
}


class GlmConfig(Struct, frozen=True):
    """The numbers of the forward pass.

    `attention` says what each layer looks at: the positions that an indexer of its own chooses ("full"), those that the
    last such layer chose ("shared"), or a memory ("linear", by `delta`); `dense` which layers have no experts. The indexer
    chooses among runs of `pool` positions. Without `streams` there is one residual stream. `prefix` is where the names of
    the language model's tensors begin.
    """

    prefix: str
    attention: tuple[str, ...]
    dense: tuple[bool, ...]
    latent: Latent
    latent_eps: float
    index: Index
    pool: int
    delta: Delta | None
    streams: Streams | None
    routing: Routing
    glu: Glu
    vocab: int
    eps: float
    tied: bool
    context: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> GlmConfig:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        whole = as_published(checkpoint)
        config = whole.text()
        _check(config)
        flash, gguf = model_type(checkpoint, ARCHITECTURES).startswith("glm5_next"), checkpoint.format == "gguf"
        layers = config.size("num_hidden_layers", most=4096)
        kinds = _kinds(config, layers) if flash else ("sparse",) * layers
        eps = config.number("rms_norm_eps", 1e-5)
        context = config.size("max_position_embeddings")
        turned = config.size("qk_rope_head_dim", least=0, most=MOST)
        rope = None if flash else _rope(config, turned, context)
        if flash and turned:
            raise config.error("qk_rope_head_dim", f"is {turned}, this model rotates nothing: it must be 0")
        pool = config.size("index_kpool", most=65536) if flash else 1
        return cls(
            prefix="model.language_model" if config is not whole else "model",
            attention=_attention(config, kinds),
            dense=dense_layers(config, layers, 3),
            latent=latent_of(config, rope, split=gguf),
            latent_eps=eps if flash else 1e-6,
            index=index_of(config, _index_rope(config, rope), pool=pool),
            pool=pool,
            delta=replace(_delta(config, eps), log=not gguf) if flash else None,
            streams=streams_of(config, eps) if flash else None,
            routing=routing_of(config),
            glu=Glu(limit=config.number("swiglu_limit")) if flash else Glu(),
            vocab=config.size("vocab_size"),
            eps=eps,
            tied=config.flag("tie_word_embeddings", False),
            context=context,
        )


def _check(config: Config) -> None:
    """Refuse what no published model of this family has."""
    config.only("hidden_act", "silu")
    for key in ("attention_bias", "mlp_bias"):
        config.without(key)
    for key in ("mla_use_nope", "index_kpool_always_select_tail", "index_kpool_compress", "mhc"):
        if not config.flag(key, True):
            raise config.error(key, "is false, this family computes it as if true")
    if config.size("moe_layer_freq", 1) != 1:
        raise config.error("moe_layer_freq", "is not 1: experts in every layer behind the dense ones can be computed")


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    """Which layers attend to positions, and which keep a memory."""
    found = config.choices("layer_types", layers, _ATTENTION)
    if found is not None:
        return found
    part = config.part("linear_attn_config")
    if part is None:
        raise config.error("layer_types", "is missing")
    numbers: dict[int, str] = {}
    for key, kind in (("kda_layers", "linear"), ("full_attn_layers", "sparse")):
        listed = part.get(key)
        if not isinstance(listed, list) or not all(type(n) is int and 1 <= n <= layers for n in listed):
            raise part.error(key, f"must list numbers of layers, from 1 to {layers}")
        numbers.update(dict.fromkeys(listed, kind))
    if len(numbers) != layers:
        raise part.error("kda_layers", f"and full_attn_layers must name all of {layers} layers")
    return tuple(numbers[i + 1] for i in range(layers))


def _attention(config: Config, kinds: tuple[str, ...]) -> tuple[str, ...]:
    layers = len(kinds)
    indexers = config.choices("indexer_types", layers, {"full": "full", "shared": "shared"}) or _indexers(config, layers)
    found = tuple(own if kind == "sparse" else kind for kind, own in zip(kinds, indexers, strict=True))
    for i, kind in enumerate(found):
        if kind == "shared" and (i == 0 or found[i - 1] == "linear"):
            raise config.error("indexer_types", f"has layer {i} share a choice, but no layer right before it makes one")
    return found


def _indexers(config: Config, layers: int) -> tuple[str, ...]:
    """Older files tell by a pattern, or by a rhythm, which layers choose for themselves."""
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        letters = list(pattern) if isinstance(pattern, str) else pattern
        if not isinstance(letters, list) or len(letters) != layers or not all(one in ("F", "S") for one in letters):
            raise config.error("index_topk_pattern", f"must be {layers} letters F or S")
        return tuple("full" if one == "F" else "shared" for one in letters)
    every, offset = config.size("index_topk_freq", 1), config.size("index_skip_topk_offset", 2, least=0)
    return tuple("full" if max(i - offset + 1, 0) % every == 0 else "shared" for i in range(layers))


def _rope(config: Config, dims: int, context: int) -> Rope:
    rules = config.part("rope_parameters") or config.part("rope_scaling") or config
    kind = rules.spelling("rope_type", "type")
    if rules.word(kind, "default") != "default":
        raise rules.error(kind, f"is {rules.word(kind)[:32]!r}, this family computes default")
    if rules.get("rope_theta") is None:
        config.number("rope_theta")  # models of this family differ in it: it must be somewhere
    return replace(rope_for(config, dims, context), interleaved=config.flag("rope_interleave", True))


def _index_rope(config: Config, rope: Rope | None) -> Rope | None:
    return rope and replace(rope, interleaved=config.flag("indexer_rope_interleave", True))


def _delta(config: Config, eps: float) -> Delta:
    part, names = config.part("linear_attn_config"), ("num_heads", "head_dim", "short_conv_kernel_size", "gate_lower_bound")
    if part is None:
        part, names = config, ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "linear_lower_bound")
    heads, head_dim, kernel, bound = names
    return Delta(
        heads=part.size(heads, most=65536),
        head_dim=part.size(head_dim, most=65536),
        kernel=part.size(kernel, least=2, most=64),
        eps=eps,
        bound=part.number(bound, above=-1e3, below=0.0),
    )
