"""Tiny checkpoints as compressed-tensors writes them: every `*_proj` quantized, W8A8, W4A16, or E4M3 (f8row, f8tensor: one scale
per matrix, f8g128: blocks of 128 x 128); the latter also as transformers and DeepSeek do (`fp8_description`).

`quantized(config, form)` gives the tensors, the config.json and the float values that the integers stand for. Packing here is
written against the format's description, not with the loader's own code; of integers, release 0.20.1 of the library reads and
writes the same bytes.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.cases.common import normal
from tests.golden import tiny

from octavo.quant import load
from octavo.quant.fp8 import E4M3FN

WIDE = {**tiny.CASES["llama"], "hidden_size": 128, "intermediate_size": 256}  # whole groups of 128
Arrays = dict[str, NDArray[Any]]
_DTYPES = {
    "<f4": "F32",
    "<f2": "F16",
    "<u2": "BF16",
    "|i1": "I8",
    "<i4": "I32",
    "<i8": "I64",
    "|u1": "F8_E4M3",
}  # no uint16 nor uint8 is stored here


def rounded(scale: NDArray[Any], kind: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Scales as stored in f32, f16 or bf16 (its bits as uint16), and as the float32 that they stand for."""
    if kind == "bf16":
        bits = load.pack("bf16", scale.astype(np.float32)).view("<u2").reshape(scale.shape)
        return bits, (bits.astype(np.uint32) << 16).view(np.float32)
    stored = scale.astype({"f32": "<f4", "f16": "<f2"}[kind])
    return stored, stored.astype(np.float32)


def packed_words(codes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Signed 4-bit codes [rows, n] as int32 [rows, ceil(n / 8)]: each plus 8, the first in the lowest bits."""
    nibbles = np.pad(codes + 8, ((0, 0), (0, -codes.shape[1] % 8))).reshape(len(codes), -1, 8)
    words = np.zeros(nibbles.shape[:2], np.int64)
    for i in range(8):
        words |= nibbles[:, :, i] << (4 * i)
    return words.astype(np.uint32).view(np.int32)


def quantized_module(
    name: str, weight: NDArray[np.float32], form: str, *, is_symmetric: bool = True, scale_type: str = "bf16"
) -> tuple[Arrays, NDArray[np.float32]]:
    """(tensors, values) of one module, rounded to nearest."""
    if form.startswith("f8"):
        return float_module(name, weight, form, scale_type)
    if form == "w8a8":
        scale, wide = rounded(np.abs(weight).max(axis=1, keepdims=True) / 127, scale_type)
        codes = np.clip(np.rint(weight / wide), -128, 127)
        tensors: Arrays = {f"{name}.weight": codes.astype(np.int8), f"{name}.weight_scale": scale}
        return tensors, codes.astype(np.float32) * wide
    size = int(form.removeprefix("i4g"))
    groups = weight.reshape(len(weight), -1, size)
    if is_symmetric:
        scale, wide = rounded(np.abs(groups).max(axis=2) / 7.5, scale_type)
        zero = np.zeros(scale.shape)
    else:
        low, high = np.minimum(groups.min(axis=2), 0), np.maximum(groups.max(axis=2), 0)
        scale, wide = rounded((high - low) / 15, scale_type)
        zero = np.clip(np.rint(-8 - low / wide), -8, 7)
    wide = wide[:, :, None]
    codes = np.clip(np.rint(groups / wide) + zero[:, :, None], -8, 7)
    tensors = {
        f"{name}.weight_packed": packed_words(codes.reshape(weight.shape).astype(np.int64)),
        f"{name}.weight_scale": scale,
        f"{name}.weight_shape": np.array(weight.shape, np.int64),
    }
    if not is_symmetric:
        tensors[f"{name}.weight_zero_point"] = np.ascontiguousarray(packed_words(zero.astype(np.int64).T).T)
    return tensors, ((codes - zero[:, :, None]).astype(np.float32) * wide).reshape(weight.shape)


def float_module(
    name: str, weight: NDArray[np.float32], form: str, scale_type: str
) -> tuple[Arrays, NDArray[np.float32]]:
    """The same of E4M3 codes."""
    if form == "f8g128":
        padded = np.pad(weight, [(0, -n % 128) for n in weight.shape])
        peaks = np.abs(padded.reshape(padded.shape[0] // 128, 128, -1, 128)).max(axis=(1, 3))
    else:
        peaks = np.abs(weight).max(axis=1, keepdims=True) if form == "f8row" else np.abs(weight).max().reshape(1)
    scale, wide = rounded(peaks / 448, scale_type)
    each = np.repeat(np.repeat(wide, 128, 0), 128, 1)[: len(weight), : weight.shape[1]] if form == "f8g128" else wide
    codes = E4M3FN.encode(weight / each)
    return {f"{name}.weight": codes, f"{name}.weight_scale": scale}, E4M3FN.decode(codes) * each


def float_description(form: str) -> dict[str, Any]:
    """The quantization_config of one group of E4M3 weights."""
    is_block = form == "f8g128"
    common = {"num_bits": 8, "type": "float", "symmetric": True, "actorder": None, "observer_kwargs": {}}
    weights = {
        **common, "dynamic": False, "observer": "minmax", "group_size": None, "block_structure": [128, 128] if is_block else None,
        "strategy": {"f8row": "channel", "f8tensor": "tensor", "f8g128": "block"}[form],
    }  # fmt: skip
    inputs = {
        **common, "dynamic": True, "observer": None, "block_structure": None, "strategy": "group" if is_block else "token",
        "group_size": 128 if is_block else None,
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    group["format"] = "float-quantized"
    return {**description("w8a8"), "format": "float-quantized", "config_groups": {"group_0": group}}


def fp8_description(form: str) -> dict[str, Any]:
    """The same as transformers' FineGrainedFP8Config says it."""
    block = {"weight_block_size": [128, 128]} if form == "f8g128" else {}
    return {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "modules_to_not_convert": ["lm_head"], **block,
    }  # fmt: skip


def description(form: str, *, is_symmetric: bool = True) -> dict[str, Any]:
    """The quantization_config of one group, with the keys that the library writes."""
    if form.startswith("f8"):
        return float_description(form)
    is_int8 = form == "w8a8"
    common = {"type": "int", "block_structure": None, "actorder": None, "observer_kwargs": {}}
    weights = {
        **common, "num_bits": 8 if is_int8 else 4, "symmetric": is_symmetric, "dynamic": False, "observer": "minmax",
        "strategy": "channel" if is_int8 else "group", "group_size": None if is_int8 else int(form.removeprefix("i4g")),
    }  # fmt: skip
    inputs = {
        **common, "num_bits": 8, "symmetric": True, "dynamic": True, "observer": None, "strategy": "token",
        "group_size": None,
    }  # fmt: skip
    group = {
        "targets": ["Linear"], "weights": weights, "input_activations": inputs if is_int8 else None,
        "output_activations": None, "format": "int-quantized" if is_int8 else "pack-quantized",
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": group["format"], "quantization_status": "compressed",
        "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None,
        "global_compression_ratio": 1.7, "sparsity_config": {}, "transform_config": {}, "version": "0.12.2",
    }  # fmt: skip


def plain(config: dict[str, Any]) -> Arrays:
    """Random float32 tensors of a config.json; norms lie around one."""
    return {
        name: normal(name, *shape, scale=0.18) + np.float32(len(shape) == 1)
        for name, shape in tiny.shapes(config).items()
    }


def quantized(
    config: dict[str, Any], form: str, *, is_symmetric: bool = True, scale_type: str = "bf16"
) -> tuple[Arrays, dict[str, Any], dict[str, NDArray[np.float32]]]:
    """(tensors, config.json, float values by tensor name) of a model with every `*_proj` quantized."""
    tensors: Arrays = {}
    values = plain(config)
    for name, array in values.items():
        if not name.endswith("_proj.weight"):
            tensors[name] = array
            continue
        module = name.removesuffix(".weight")
        made, values[name] = quantized_module(module, array, form, is_symmetric=is_symmetric, scale_type=scale_type)
        tensors |= made
    return tensors, {**config, "quantization_config": description(form, is_symmetric=is_symmetric)}, values


def write(folder: Path, tensors: Arrays, config: dict[str, Any]) -> Path:
    """A model folder without tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, array in tensors.items():
        end = at + array.nbytes
        header[name] = {"dtype": _DTYPES[array.dtype.str], "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    content = [
        struct.pack("<Q", len(text)),
        text,
        *(np.ascontiguousarray(array).tobytes() for array in tensors.values()),
    ]
    (folder / "model.safetensors").write_bytes(b"".join(content))
    (folder / "config.json").write_text(json.dumps(config))
    return folder
