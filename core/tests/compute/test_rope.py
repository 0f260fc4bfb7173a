from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.config import Config
from colibri.compute.rope import Rope, rope_for
from colibri.errors import CheckpointError

DIM, THETA = 16, 10000.0
PLAIN = [THETA ** (-2 * j / DIM) for j in range(DIM // 2)]


def of(config: dict[str, Any], context: int = 4096) -> Rope:
    return rope_for(Config(config, Path("f")), DIM, context)


def close(values: list[float]) -> Any:
    return pytest.approx(values, rel=1e-6)


def test_default() -> None:
    assert list(of({}).inv_freq) == close(PLAIN)
    assert of({}).factor == 1
    assert of({"rope_theta": 100.0}) == of({"rope_parameters": {"rope_theta": 100.0}}) != of({})
    assert len(of({"partial_rotary_factor": 0.5}).inv_freq) == 4


def test_linear() -> None:
    assert list(of({"rope_scaling": {"type": "linear", "factor": 4}}).inv_freq) == close([f / 4 for f in PLAIN])


def test_llama3_keeps_fast_turns_and_slows_slow_ones() -> None:
    rules = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 512}  # fmt: skip
    expected = []
    for f in PLAIN:
        length = 2 * math.pi / f
        if length < 512 / 4:
            expected.append(f)
        elif length > 512:
            expected.append(f / 8)
        else:
            smooth = (512 / length - 1) / 3
            expected.append((1 - smooth) * f / 8 + smooth * f)
    found = of({"rope_scaling": rules})
    assert list(found.inv_freq) == close(expected)
    assert found.inv_freq[0] == pytest.approx(1.0)
    assert found.inv_freq[-1] == pytest.approx(PLAIN[-1] / 8)


def test_yarn() -> None:
    rules = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    found = of({"rope_scaling": rules})
    assert found.factor == pytest.approx(0.1 * math.log(4) + 1)
    # dim(32) = 16 ln(256 / 64 pi) / (2 ln 10000) = 0.21 -> 0; dim(1) = 3.22 -> 4: a ramp over the first four.
    ramp = [0, 0.25, 0.5, 0.75, 1, 1, 1, 1]
    assert list(found.inv_freq) == close([f * ((1 - r) + r / 4) for f, r in zip(PLAIN, ramp, strict=True)])
    assert of({"rope_scaling": {**rules, "attention_factor": 1.5}}).factor == 1.5
    both = of({"rope_scaling": {**rules, "mscale": 0.7, "mscale_all_dim": 1.4}}).factor
    assert both == pytest.approx((0.07 * math.log(4) + 1) / (0.14 * math.log(4) + 1))
    assert of({"rope_scaling": {"type": "yarn", "factor": 4.0}}, context=256) == found


def test_some_files_count_what_is_rotated() -> None:
    assert of({"rotary_dim": 8}) == Rope(DIM, rope_for(Config({}, Path("f")), 8, 1).inv_freq)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "rope_scaling.type 'dynamic' is unknown"),
        ({"rope_scaling": {"type": 3}}, "rope_scaling.type must be a string"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor must be a positive number"),
        ({"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4,
                           "original_max_position_embeddings": 8}}, "rope_scaling.low_freq_factor must be smaller"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "rope_theta": 1.0}}, "rope_theta must be larger than 1"),
        ({"partial_rotary_factor": 1.5}, "rope rotates 24 of 16 values"),
        ({"partial_rotary_factor": 0.01}, "rope rotates 0 of 16 values"),
        ({"rope_theta": "x"}, "rope_theta must be a positive number"),
    ],
)  # fmt: skip
def test_bad_rules_are_named(config: dict[str, Any], key: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        of(config)
    assert key in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "a."])
def test_a_head_of_absurd_width_is_refused_before_its_frequencies_are_computed(prefix: str) -> None:
    config = Config({f"{prefix}rope_theta": 1e6, f"{prefix}rope.freq_base": 1e6}, Path("f"), prefix)
    with pytest.raises(CheckpointError, match=rf"{prefix}rope is over heads of {1 << 29} values, more than 65536"):
        rope_for(config, 1 << 29, 4096)


@pytest.mark.parametrize(
    "config",
    [
        {"rope_parameters": {"full": {"rope_theta": 1e6}, "narrow": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}},
        {"rope_theta": 1e6, "narrow_theta": 1e4, "partial_rotary_factor": 0.5},
        {"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}, "narrow_theta": 1e4},
    ],
)
def test_kinds_of_layers_may_have_bases_of_their_own(config: dict[str, object]) -> None:
    read = partial(rope_for, Config(config, Path("f")), DIM, 4096)
    assert read(layers="narrow", theta="narrow_theta") == of({"rope_theta": 1e4, "partial_rotary_factor": 0.5})
    full = read(layers="full").inv_freq
    assert full[1] == pytest.approx(1e6 ** (-1 / len(full)))


def test_a_kind_of_layers_may_be_scaled_alone() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    config = Config({"rope_parameters": {"a": yarn, "b": {"rope_type": "spiral"}}}, Path("f"))
    assert rope_for(config, DIM, 4096, layers="a") == of({"rope_scaling": yarn})
    with pytest.raises(CheckpointError, match=r"^f: rope_parameters\.b\.rope_type 'spiral'"):
        rope_for(config, DIM, 4096, layers="b")
