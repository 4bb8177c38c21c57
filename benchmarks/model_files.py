"""Writes one model in the forms that engines read: GGUF, bfloat16 safetensors, compressed-tensors; tokenizers beside them.

Everything is streamed: a slice of rows at a time is made, rounded and written. Quantisation is round to nearest: it is speed
that is compared. In GGUF files of 4 bits and fewer the embedding, which is the output matrix too, is q6_k (q8_0 where rows are
not whole blocks of 256), as llama.cpp's own quantizer does it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from benchmarks.shapes import Shape, Tensor, Weights, paired, slices
from numpy.typing import NDArray

from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.quant.formats import BY_NAME
from octavo.quant.load import pack

FILE_TYPES = {"bf16": 32, "q8_0": 7, "q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9}
FILE_TYPES |= {"q2_k": 10, "q3_k": 12, "q4_k": 14, "q5_k": 16, "q6_k": 18}
KEPT_TYPES = {"uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32"}

Array = NDArray[Any]


def gguf_format(tensor: Tensor, wanted: str) -> str:
    """The format of one tensor in a file of format `wanted`."""
    if not tensor.is_matrix:
        return "f32"
    if tensor.is_embedding and BY_NAME[wanted].bits <= 4:
        return "q6_k" if tensor.shape[-1] % 256 == 0 else "q8_0"
    return wanted


def check_gguf(shape: Shape, wanted: str) -> str:
    """Why the model cannot be written in a format, or ''."""
    block = BY_NAME[wanted].block_size
    odd = next((t for t in shape.tensors() if t.is_matrix and not t.is_embedding and t.shape[-1] % block), None)
    return f"{wanted} has blocks of {block}, and {odd.gguf} has rows of {odd.shape[-1]}" if odd else ""


def write_gguf(path: Path, weights: Weights, wanted: str, tokenizer: Mapping[str, Any], threads: int) -> None:
    """A GGUF file with every matrix in `wanted` (the embedding see above)."""
    shape, writer = weights.shape, GGUFWriter()
    for key, value in {**shape.gguf_keys(), "general.file_type": FILE_TYPES[wanted]}.items():
        writer.add(key, value)
    for key, value in padded_tokens(tokenizer, shape.vocab).items():
        writer.add(key, value)
    with ThreadPoolExecutor(threads) as pool:
        for tensor in shape.tensors():
            name = gguf_format(tensor, wanted)
            writer.add_tensor(tensor.gguf, name, tensor.shape, _packed(weights, tensor, name, pool))
        writer.write(path)


def _packed(weights: Weights, tensor: Tensor, name: str, pool: ThreadPoolExecutor) -> Callable[[], Array]:
    def one(part: tuple[int, int]) -> Array:
        return pack(name, weights.rows(tensor, *part))

    def make() -> Array:
        rows = np.concatenate(list(pool.map(one, slices(tensor.shape))))
        return paired(rows, tensor.paired_heads)  # whole rows move, so packed ones can

    return make


def padded_tokens(tokenizer: Mapping[str, Any], vocab: int) -> dict[str, Any]:
    """A GGUF file's tokenizer keys with unused tokens added up to `vocab`."""
    keys = {key: value for key, value in tokenizer.items() if key.startswith("tokenizer.")}
    tokens, types = list(keys["tokenizer.ggml.tokens"]), list(keys["tokenizer.ggml.token_type"])
    more = vocab - len(tokens)
    if more < 0:
        raise ValueError(f"the tokenizer has {len(tokens)} tokens, the model {vocab}")
    keys["tokenizer.ggml.tokens"] = tokens + [f"<unused_{i}>" for i in range(more)]
    keys["tokenizer.ggml.token_type"] = np.asarray([*types, *[5] * more], np.int32)
    keys["tokenizer.ggml.merges"] = list(keys["tokenizer.ggml.merges"])
    return {key: value for key, value in keys.items() if isinstance(value, str | bool | int | list | np.ndarray)}


def write_tokenizer(folder: Path, tokenizer: Mapping[str, Any]) -> None:
    """tokenizer.json and tokenizer_config.json out of a GGUF file's keys."""
    from octavo.engine.text.tokenizer import Tokenizer

    made = Tokenizer.from_gguf(tokenizer)
    (folder / "tokenizer.json").write_text(made.rust.to_str())
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "bos_token": made.token(1),
        "eos_token": made.token(2), "pad_token": made.token(2), "unk_token": made.token(0),
        "model_max_length": 8192, "chat_template": made.chat_templates["default"],
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1))


# -- safetensors -------------------------------------------------------------------------------------------------------
Part = tuple[str, str, tuple[int, ...], Callable[[], Iterator[Array]]]  # name, dtype, shape, pieces of its bytes
_SIZES = {"BF16": 2, "I8": 1, "I32": 4, "I64": 8}


def write_safetensors(path: Path, parts: list[Part]) -> None:
    """A safetensors file; every part gives its bytes in pieces."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, dtype, shape, _ in parts:
        size = int(np.prod(shape)) * _SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, pieces in parts:
            _write_part(file, name, header[name]["data_offsets"], pieces)


def _write_part(file: BinaryIO, name: str, offsets: list[int], pieces: Callable[[], Iterator[Array]]) -> None:
    written = sum(file.write(np.ascontiguousarray(piece).data.cast("B")) for piece in pieces())
    if written != offsets[1] - offsets[0]:
        raise ValueError(f"{name} has {written} bytes; its place takes {offsets[1] - offsets[0]}")


def bf16_bits(values: Array) -> Array:
    """The upper halves of float32 values that are bfloat16 numbers already."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def write_folder(folder: Path, weights: Weights, form: str, tokenizer: Mapping[str, Any]) -> None:
    """A Hugging Face folder; `form`: bf16, w8a8 or w4a16 (compressed-tensors)."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = weights.shape
    parts: list[Part] = []
    for tensor in shape.tensors():
        if form == "bf16" or not tensor.is_matrix or tensor.is_embedding:
            parts.append((tensor.hf, "BF16", tensor.shape, _pieces(weights, tensor, bf16_bits)))
        elif form == "w8a8":
            parts += _w8a8(weights, tensor)
        else:
            parts += _w4a16(weights, tensor, group_of(shape))
    write_safetensors(folder / "model.safetensors", parts)
    config = shape.hf_config()
    if form != "bf16":
        config["quantization_config"] = compressed_config(form, group_of(shape))
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(folder, tokenizer)


def _pieces(weights: Weights, tensor: Tensor, change: Callable[[Array], Array]) -> Callable[[], Iterator[Array]]:
    return lambda: (change(weights.rows(tensor, *part)) for part in slices(tensor.shape))


def group_of(shape: Shape) -> int:
    """Weights that share a scale in w4a16: 128 where every row is whole groups, else 64 or 32."""
    widths = [t.shape[-1] for t in shape.tensors() if t.is_matrix and not t.is_embedding]
    return next(group for group in (128, 64, 32) if all(width % group == 0 for width in widths))


def w8a8_codes(values: Array) -> tuple[Array, Array]:
    """int8 codes [rows, k] and float32 scales [rows, 1]: one scale a row, codes within 127."""
    scale = np.maximum(np.abs(values).max(axis=1, keepdims=True) / np.float32(127), np.float32(1e-12))
    return np.rint(values / scale).astype(np.int8), scale


def w4a16_codes(values: Array, group: int) -> tuple[Array, Array]:
    """int32 [rows, k / 8], eight codes (value + 8) in each, lowest first; float32 scales [rows, k / group]."""
    rows, width = values.shape
    grouped = values.reshape(rows, width // group, group)
    scale = np.maximum(np.abs(grouped).max(axis=2) / np.float32(7), np.float32(1e-12))
    codes = (np.rint(grouped / scale[..., None]).clip(-8, 7) + 8).astype(np.uint32).reshape(rows, width // 8, 8)
    shifted = codes << (4 * np.arange(8, dtype=np.uint32))
    return np.bitwise_or.reduce(shifted, axis=2).view(np.int32), scale


def _rounded(scale: Array) -> Array:
    from benchmarks.shapes import to_bf16

    return bf16_bits(to_bf16(np.ascontiguousarray(scale, np.float32)))


def _w8a8(weights: Weights, tensor: Tensor) -> list[Part]:
    rows = tensor.shape[0]
    return [
        (tensor.hf, "I8", tensor.shape, _pieces(weights, tensor, lambda values: w8a8_codes(values)[0])),
        (f"{tensor.hf}_scale", "BF16", (rows, 1), _pieces(weights, tensor, lambda v: _rounded(w8a8_codes(v)[1]))),
    ]


def _w4a16(weights: Weights, tensor: Tensor, group: int) -> list[Part]:
    rows, width = tensor.shape
    return [
        (f"{tensor.hf}_packed", "I32", (rows, width // 8), _pieces(weights, tensor, lambda v: w4a16_codes(v, group)[0])),
        (f"{tensor.hf}_scale", "BF16", (rows, width // group),
         _pieces(weights, tensor, lambda v: _rounded(w4a16_codes(v, group)[1]))),
        (f"{tensor.hf}_shape", "I64", (2,), lambda: iter([np.asarray(tensor.shape, np.int64)])),
    ]  # fmt: skip


def compressed_config(form: str, group: int) -> dict[str, Any]:
    """config.json's quantization_config."""
    bits = 8 if form == "w8a8" else 4
    how: dict[str, Any] = {"num_bits": bits, "type": "int", "symmetric": True, "dynamic": False}
    how |= {"strategy": "channel"} if bits == 8 else {"strategy": "group", "group_size": group}
    inputs = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"}
    return {
        "quant_method": "compressed-tensors", "format": "int-quantized" if bits == 8 else "pack-quantized",
        "quantization_status": "compressed", "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": how, "input_activations": inputs if bits == 8 else None}
        },
    }  # fmt: skip
