"""Writes data/quant.safetensors, data/quant.gguf and data/quant.npz: one small matrix in every quantised format that can be
read, with its values. What a code stands for is what PyTorch (8-bit floats), compressed-tensors (packed integers and e2m1)
and the gguf package (its block types) say; what is left to do here is to multiply by the scales.

    pip install torch compressed-tensors gguf safetensors numpy && python core/tests/compute/make_quant.py
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from safetensors.torch import save_file

OUT, IN = 40, 160  # no whole number of blocks of 128, nor of blocks of 32 rows
DATA = Path(__file__).parent / "data"

torch.manual_seed(5)
stored: dict[str, torch.Tensor] = {}
values: dict[str, np.ndarray] = {}


def put(name: str, decoded: torch.Tensor, *, weight_name: str = "weight", **tensors: torch.Tensor) -> None:
    stored.update({f"{name}.{suffix}": tensor.clone() for suffix, tensor in tensors.items()})
    values[f"{name}.{weight_name}"] = decoded.float().numpy()


def over_blocks(scales: torch.Tensor, rows: int, cols: int) -> torch.Tensor:
    """A grid of scales as a matrix of what each value is multiplied by."""
    return scales.float().repeat_interleave(rows, 0).repeat_interleave(cols, 1)[:OUT, :IN]


def grid(rows: int, cols: int) -> tuple[int, int]:
    return -(-OUT // rows), -(-IN // cols)


def eighths(*shape: int) -> torch.Tensor:
    return torch.randn(shape).mul(64).clamp(-448, 448).to(torch.float8_e4m3fn)


def powers(*shape: int) -> torch.Tensor:
    return torch.randint(118, 125, shape, dtype=torch.uint8).view(torch.float8_e8m0fnu)


def uniform(*shape: int) -> torch.Tensor:
    return torch.rand(shape) * 9e-3 + 1e-3


def fp4() -> tuple[torch.Tensor, torch.Tensor]:
    packed = torch.randint(0, 256, (OUT, IN // 2), dtype=torch.uint8)
    return packed, unpack_fp4_from_uint8(packed, OUT, IN, dtype=torch.float32)


for name, suffix, block, scales in (
    ("fp8_block", "weight_scale_inv", (128, 128), uniform(*grid(128, 128))),
    ("fp8_block_bf16", "weight_scale_inv", (128, 128), uniform(*grid(128, 128)).bfloat16()),
    ("fp8_powers", "scale", (128, 128), powers(*grid(128, 128))),
    ("fp8_powers_32", "scale", (32, 32), powers(*grid(32, 32))),
    ("fp8_tensor", "weight_scale", (OUT, IN), uniform()),
    ("fp8_channel", "weight_scale", (1, IN), uniform(OUT, 1)),
):
    codes = eighths(OUT, IN)
    put(name, codes.float() * over_blocks(scales.reshape(grid(*block)), *block), weight=codes, **{suffix: scales})
codes, scales = eighths(OUT, IN), powers(*grid(1, 32))
put("mxfp8", codes.float() * over_blocks(scales, 1, 32), weight=codes, weight_scale=scales.view(torch.uint8))

packed, decoded = fp4()
scales = powers(*grid(1, 32))
put("mxfp4_signed", decoded * over_blocks(scales, 1, 32), weight=packed.view(torch.int8), scale=scales)
for name, suffix in (("mxfp4", "weight"), ("mxfp4_packed", "weight_packed")):
    packed, decoded = fp4()
    scales = powers(*grid(1, 32))
    put(name, decoded * over_blocks(scales, 1, 32), weight_scale=scales.view(torch.uint8), **{suffix: packed})
packed, decoded = fp4()
scales = powers(*grid(1, 32))
blocks, exponents = packed.reshape(1, OUT, IN // 32, 16), scales.view(torch.uint8)[None]
put("mxfp4_blocks", (decoded * over_blocks(scales, 1, 32))[None], weight_blocks=blocks, weight_scales=exponents)

packed, decoded = fp4()
scales, divisor = eighths(*grid(1, 16)).float().abs().to(torch.float8_e4m3fn), torch.tensor([768.0])
decoded = decoded * over_blocks(scales.float() / divisor, 1, 16)
put("nvfp4_packed", decoded, weight_packed=packed, weight_scale=scales, weight_global_scale=divisor)
packed, decoded = fp4()
scales, factor = eighths(*grid(1, 16)).float().abs().to(torch.float8_e4m3fn), torch.tensor(0.0013)
put(
    "nvfp4", decoded * over_blocks(scales.float() * factor, 1, 16), weight=packed, weight_scale=scales, weight_scale_2=factor
)

several = [(*fp4(), eighths(*grid(1, 16)).float().abs().to(torch.float8_e4m3fn)) for _ in range(3)]
largest, divisor = torch.tensor([3.5, 0.25, 7.0]), torch.tensor(2688.0)
decoded = torch.stack([
    decoded * over_blocks(scales.float() * amax / divisor, 1, 16)
    for (_, decoded, scales), amax in zip(several, largest, strict=True)
])  # fmt: skip
put("nvfp4_experts", decoded, weight_name="w13_weight",
    w13_weight=torch.stack([packed for packed, _, _ in several]),
    w13_weight_scale=torch.stack([scales.view(torch.uint8) for _, _, scales in several]).view(torch.float8_e4m3fn),
    w13_weight_amax=largest, w13_weight_outer_scale_denominator=divisor)  # fmt: skip
codes, scales = eighths(3, OUT, IN), uniform(3)
put(
    "fp8_experts",
    codes.float() * scales[:, None, None],
    weight_name="down_proj",
    down_proj=codes,
    down_proj_scale_inv=scales,
)

shape = torch.tensor([OUT, IN])
for bits in (4, 8):
    low = 1 << (bits - 1)
    words = pack_to_int32(torch.randint(-low, low, (OUT, IN), dtype=torch.int8), bits)
    scales = uniform(*grid(1, 32)).bfloat16()
    numbers = unpack_from_int32(words, bits, torch.Size([OUT, IN])).float()
    put(f"int{bits}_packed", numbers * over_blocks(scales, 1, 32),
        weight_packed=words, weight_scale=scales, weight_shape=shape)  # fmt: skip
    zeros = torch.randint(-low, low, grid(1, 32), dtype=torch.int8)
    numbers = numbers - over_blocks(zeros, 1, 32)
    put(f"int{bits}_packed_zeros", numbers * over_blocks(scales, 1, 32), weight_packed=words, weight_scale=scales,
        weight_shape=shape, weight_zero_point=pack_to_int32(zeros, bits, packed_dim=0))  # fmt: skip
codes, scales = torch.randint(-128, 128, (OUT, IN), dtype=torch.int8), uniform(OUT, 1).half()
put("int8", codes.float() * scales.float(), weight=codes, weight_scale=scales)

generator = np.random.default_rng(6)
writer = gguf.GGUFWriter(DATA / "quant.gguf", "none")
for name, halves in {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
    "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [],
}.items():  # fmt: skip
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = generator.integers(0, 256, (3 * 256 // elements, size)).astype(np.uint8)
    for at in halves:
        data[:, at : at + 2] = generator.uniform(1e-3, 2e-2, (len(data), 1)).astype("<f2").view(np.uint8)
    if name == "MXFP4":
        data[:, 0] = generator.integers(118, 125, len(data))
    if name == "NVFP4":
        data[:, :4] &= 127
    data = data.reshape(3, -1)
    values[name.lower()] = gguf.quants.dequantize(data, kind)
    writer.add_tensor(name.lower(), data, raw_dtype=kind)
values["scaled.weight"] = values["nvfp4"] * np.float32(0.7)
writer.add_tensor("scaled.weight", data, raw_dtype=kind)  # the last one, NVFP4
writer.add_tensor("scaled.scale", np.array([0.7], np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
save_file(stored, DATA / "quant.safetensors")
np.savez_compressed(DATA / "quant.npz", **values)
