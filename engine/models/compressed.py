"""Checkpoints whose config.json has a quantization_config: what it says about quantized weights, and the weights.

Of compressed-tensors (vLLM, llm-compressor) are served `int-quantized` W8A8 (int8 weights with one scale per output, dynamic
per-token int8 inputs: format w8a8), `pack-quantized` W4A16 in groups of 32, 64 or 128, symmetric or not (i4g32, i4g64, i4g128;
their products take inputs as int8 per group), and `float-quantized` E4M3 with dynamic E4M3 inputs: one scale per output or
tensor, inputs scaled per token (f8row), or per block of 128 x 128, inputs per 128 (f8g128). Of `fp8` (transformers, DeepSeek,
vLLM) the same two with `activation_scheme` dynamic. Everything else in `quantization_config` that could change a result is
one ModelError naming the key.

Which modules are quantized is read off the tensors (a `weight_packed`, or a `weight` of one byte), and each must fit a declared
group; so `targets` and `ignore` are never matched as patterns, which a hostile file could make arbitrarily slow.
Source: github.com/vllm-project/compressed-tensors, and FineGrainedFP8Config of github.com/huggingface/transformers
(`weight_scale_inv` multiplies, its name notwithstanding: DeepSeek-V3, arXiv:2412.19437), whose names and layouts these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.reader import Description
from octavo.platforms.stored import FLOAT_FORMATS, values_of
from octavo.platforms.types import RawTensor
from octavo.quant.f8 import BLOCK, scales_by_row
from octavo.quant.formats import format_named
from octavo.quant.load import as_array

KEY = "quantization_config"
GROUPS = (32, 64, 128)
_METHODS = ("compressed-tensors", "fp8")
_FORMATS = ("int-quantized", "pack-quantized", "float-quantized", "mixed-precision")
_SERVED = (
    "served are 8 bits by channel, int-quantized (W8A8), 4 bits by group, pack-quantized (W4A16), and E4M3 by tensor, channel or "
    "block of 128 x 128, float-quantized"
)
_DYNAMIC = (
    "inputs are scaled as they come; quantize the model anew with dynamic activation scales (FP8_DYNAMIC, FP8_BLOCK)"
)
_CODES = {"i8": "int8", "f8_e4m3": "E4M3", "f8_e5m2": "E5M2"}
_CODES_PER_WORD = 8


@dataclass(frozen=True)
class Scheme:
    """How one group of modules is quantized: a format of `octavo.quant`, with or without zero points; the name of its scales."""

    form: str
    has_zeros: bool = False
    scale: str = "weight_scale"


def read_schemes(cfg: Description) -> tuple[Scheme, ...]:
    """The schemes that a config.json declares; empty where it declares none."""
    value = cfg.get(KEY)
    if value is None:
        return ()
    whole = _table(cfg, KEY, value)
    method = whole.get("quant_method")
    if method not in _METHODS:
        known = ", ".join(map(repr, _METHODS))
        raise whole.bad(
            "quant_method", method, f"one of {known}; load the model that it was made from, with --quantization"
        )
    if method == "fp8":
        return _fp8_schemes(whole)
    packing = whole.text("format")
    if packing not in _FORMATS:
        raise whole.bad("format", packing, f"one of {', '.join(_FORMATS)}")
    whole.expect("quantization_status", "compressed")
    whole.expect("kv_cache_scheme")
    sparsity = whole.get("sparsity_config")
    if sparsity and not (isinstance(sparsity, Mapping) and sparsity.get("format") == "dense"):
        raise whole.bad("sparsity_config", sparsity, "absent: sparse weights are not served")
    whole.skip("global_compression_ratio", "run_compressed")
    _names(whole, "ignore", [])
    groups = whole.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise whole.bad("config_groups", groups, "a table of groups")
    whole.finish()
    return tuple(_scheme(_table(whole, f"config_groups.{name}", group), packing) for name, group in groups.items())


def _fp8_schemes(whole: Description) -> tuple[Scheme, ...]:
    """What transformers and vLLM call fp8: blocks of 128 x 128, or one scale per tensor."""
    scheme = whole.text("activation_scheme", "dynamic")
    if scheme != "dynamic":
        raise whole.bad("activation_scheme", scheme, f"'dynamic': {_DYNAMIC}")
    whole.expect("fmt", "e4m3")
    whole.expect("scale_fmt", "float")
    for key in ("modules_to_not_convert", "ignored_layers"):
        _names(whole, key, [])
    block = whole.get("weight_block_size")
    if block is not None and block != [BLOCK, BLOCK]:
        raise whole.bad("weight_block_size", block, f"null or [{BLOCK}, {BLOCK}]")
    whole.expect("kv_cache_scheme")
    whole.expect("dequantize", False)
    whole.finish()
    form, inverse = "f8row" if block is None else "f8g128", "weight_scale_inv"
    return (Scheme(form, scale=inverse), *([Scheme(form)] if block is None else []))


def _table(parent: Description, key: str, value: Any) -> Description:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise parent.bad(key, value, "a table")
    return Description(value, f"{parent.where}: {key}")


def _names(table: Description, key: str, default: list[str] | None = None) -> None:
    value = table.get(key, default)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise table.bad(key, value, "a list of names")


def _scheme(group: Description, packing: str) -> Scheme:
    _names(group, "targets")
    packing = group.text("format", packing)
    group.expect("output_activations")
    weights = _table(group, "weights", group.get("weights"))
    inputs = group.get("input_activations")
    weights.expect("type", "int", "float")
    weights.expect("dynamic", False)
    weights.expect("actorder", False, "weight", "static")  # columns reordered per group would need their index
    structure = weights.get("block_structure")
    weights.skip(
        "observer", "observer_kwargs", "scale_dtype", "zp_dtype"
    )  # how scales were found; tensors say their type
    bits, strategy = weights.whole("num_bits"), weights.get("strategy")
    is_symmetric = weights.flag("symmetric", True)
    kind = weights.text("type", "int")
    if bits == 8 and inputs is None and packing in _FORMATS:
        raise group.bad(
            "input_activations", inputs, "dynamic ones of 8 bits, beside weights of 8 bits: W8A16 is not served; quantize "
            "the model anew (W8A8, FP8_DYNAMIC, FP8_BLOCK), or load its original with --quantization"
        )  # fmt: skip
    if (packing, kind, bits) == ("float-quantized", "float", 8) and strategy in ("tensor", "channel", "block"):
        weights.expect("symmetric", True)
        weights.expect("group_size", -1)
        is_block = strategy == "block"
        if (structure is not None or is_block) and structure != [BLOCK, BLOCK]:
            raise weights.bad("block_structure", structure, f"[{BLOCK}, {BLOCK}], of strategy 'block'")
        _expect_inputs(_table(group, "input_activations", inputs), "float", BLOCK if is_block else None)
        made = Scheme("f8g128" if is_block else "f8row")
    elif structure is not None:
        raise weights.bad("block_structure", structure, "null")
    elif (packing, kind, bits, strategy) == ("int-quantized", "int", 8, "channel"):
        weights.expect("symmetric", True)
        weights.expect("group_size", -1)
        _expect_inputs(_table(group, "input_activations", inputs), "int")
        made = Scheme("w8a8")
    elif (packing, kind, bits, strategy) == ("pack-quantized", "int", 4, "group"):
        size = weights.whole("group_size")
        if size not in GROUPS:
            raise weights.bad("group_size", size, f"one of {', '.join(map(str, GROUPS))}")
        if inputs is not None:
            raise group.bad("input_activations", inputs, "null for 4-bit weights (W4A16)")
        made = Scheme(f"i4g{size}", not is_symmetric)
    else:
        raise ModelError(
            f"{group.where}: weights of {bits} bits, strategy {strategy!r}, format {packing!r}, type {kind!r}; {_SERVED}"
        )
    weights.finish()
    group.finish()
    return made


def _expect_inputs(inputs: Description, kind: str, size: int | None = None) -> None:
    """Dynamic, symmetric, of 8 bits; scaled per token, or per token and `size` inputs."""
    if inputs.get("dynamic") is not True:
        raise inputs.bad("dynamic", inputs.get("dynamic"), f"True: {_DYNAMIC}" if kind == "float" else "True")
    wanted = {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "group" if size else "token"}
    for key, one in wanted.items():
        value = inputs.get(key)
        if value != one or type(value) is not type(one):
            raise inputs.bad(
                key, value, f"{one!r} (dynamic symmetric {kind} of 8 bits is what these weights are served with)"
            )
    inputs.expect("group_size", *([size] if size else []))
    inputs.expect("block_structure")
    inputs.expect("actorder")
    inputs.skip("observer", "observer_kwargs", "scale_dtype", "zp_dtype")
    inputs.finish()


def has_matrix(checkpoint: Checkpoint, stem: str) -> bool:
    """Whether the checkpoint holds a weight of this module, plain or packed."""
    return f"{stem}.weight" in checkpoint or f"{stem}.weight_packed" in checkpoint


def is_quantized(checkpoint: Checkpoint, stem: str) -> bool:
    """Whether a module's weight is stored as codes."""
    name = f"{stem}.weight"
    return f"{name}_packed" in checkpoint or (name in checkpoint and checkpoint.info(name).format in _CODES)


def quantized_matrix(
    checkpoint: Checkpoint, stem: str, shape: tuple[int, int], schemes: tuple[Scheme, ...]
) -> tuple[RawTensor, list[str]]:
    """A quantized weight [out, in] with its scales and zero points, and the names that were claimed for it."""
    return _Matrix(checkpoint, stem, shape).read(schemes)


class _Matrix:
    """One module's tensors: `weight` or `weight_packed`, `weight_scale`, `weight_shape`, `weight_zero_point`."""

    def __init__(self, checkpoint: Checkpoint, stem: str, shape: tuple[int, int]) -> None:
        self.checkpoint = checkpoint
        self.stem = stem
        self.shape = shape
        self.used: list[str] = []

    def read(self, schemes: tuple[Scheme, ...]) -> tuple[RawTensor, list[str]]:
        is_packed = f"{self.stem}.weight_packed" in self.checkpoint
        stored = "i32" if is_packed else self.checkpoint.info(f"{self.stem}.weight").format
        if stored == "f8_e5m2":
            raise ModelError(
                f"{self.checkpoint.describe()}: tensor {self.stem}.weight is of E5M2 codes; served are E4M3 (f8_e4m3): quantize "
                "the model anew"
            )
        names = [scheme.scale for scheme in schemes] or ["weight_scale"]
        scale = self.take(next((name for name in names if self.has(name)), names[-1]), *FLOAT_FORMATS)
        scheme = self.fitting(schemes, stored, scale)
        num_out, num_in = self.shape
        form = format_named(scheme.form)
        groups = form.num_groups(num_in)
        if is_packed:
            self.check_stated_shape()
            codes = self.take("weight_packed", "i32", shape=(num_out, -(-num_in // _CODES_PER_WORD)))
        else:
            codes = self.take("weight", stored, shape=self.shape)
        zeros = self.zeros(groups) if scheme.has_zeros else None
        if not scheme.has_zeros and self.has("weight_zero_point"):
            self.check_no_zeros()
        if form.code == "int" or scale.shape in ((num_out, groups), (num_out,)):
            scales = RawTensor(scale.name, scale.format, (num_out, groups), scale.data)
        else:
            each = scales_by_row(values_of(scale), self.shape, form)
            scales = RawTensor(scale.name, "f32", each.shape, each.view(np.uint8).reshape(-1))
        return RawTensor(codes.name, scheme.form, self.shape, codes.data, scales, zeros), self.used

    def fitting(self, schemes: tuple[Scheme, ...], stored: str, scale: RawTensor) -> Scheme:
        """The declared scheme whose form and number of scales these tensors have."""
        num_out, num_in = self.shape
        kinds = {"i32": ("int", 4), "i8": ("int", 8), "f8_e4m3": ("e4m3", 8)}
        for scheme in schemes:
            form = format_named(scheme.form)
            groups = form.num_groups(num_in)
            shapes: list[tuple[int, ...]] = [(num_out, groups)] if form.group != BLOCK or form.code == "int" else []
            if not form.group:
                shapes.append((num_out,))
            if form.code != "int":
                shapes += [(-(-num_out // BLOCK), groups)] if form.group else [(), (1,), (1, 1)]
            fits = scale.shape in shapes and scale.name.endswith(f".{scheme.scale}")
            if fits and kinds[stored] == (form.code, form.bits) and scheme.has_zeros <= self.has("weight_zero_point"):
                return scheme
        all_of_them = [scheme.form + (" with zero points" if scheme.has_zeros else "") for scheme in schemes]
        declared = ", ".join(dict.fromkeys(all_of_them))
        raise ModelError(
            f"{self.stem}: {'packed 4-bit' if stored == 'i32' else _CODES[stored]} weights [{num_out}, {num_in}] with scales "
            f"{list(scale.shape)} fit no group that {KEY} declares ({declared or 'there is none'})"
        )

    def zeros(self, groups: int) -> RawTensor:
        """Zero points, packed along the outputs, as uint8 [out, groups]."""
        num_out = self.shape[0]
        packed = self.take("weight_zero_point", "i32", shape=(-(-num_out // _CODES_PER_WORD), groups))
        words = as_array("u32", packed.data, packed.shape)
        shifts = np.arange(0, 32, 4, dtype=np.uint32)
        codes = (words[:, None, :] >> shifts[:, None]) & np.uint32(15)
        rows = np.ascontiguousarray(codes.reshape(-1, groups)[:num_out].astype(np.uint8))
        return RawTensor(packed.name, "u8", rows.shape, rows.reshape(-1))

    def check_no_zeros(self) -> None:
        """Symmetric weights may come with zero points all the same; they must be zero then."""
        found = self.take("weight_zero_point")
        if found.data.any():
            raise ModelError(f"{found.name}: zero points that are not zero, and {KEY} calls these weights symmetric")

    def check_stated_shape(self) -> None:
        stated = self.take("weight_shape", "i64", "i32", shape=(2,))
        values = as_array(stated.format, stated.data, stated.shape).tolist()
        if values != list(self.shape):
            raise ModelError(f"{stated.name} says {values}; the model's description asks for {list(self.shape)}")

    def has(self, what: str) -> bool:
        return f"{self.stem}.{what}" in self.checkpoint

    def take(self, what: str, *formats: str, shape: tuple[int, ...] | None = None) -> RawTensor:
        """Claims a tensor of the module and checks its type and shape."""
        name = f"{self.stem}.{what}"
        self.checkpoint.claim(name)
        form, found, data = self.checkpoint.raw(name)
        if formats and form not in formats:
            raise ModelError(
                f"{self.checkpoint.describe()}: tensor {name} is {form}; it must be {' or '.join(formats)}"
            )
        if shape is not None and found != shape:
            raise ModelError(
                f"{self.checkpoint.describe()}: tensor {name} has shape {list(found)}; "
                f"a weight of {list(self.shape)} asks for {list(shape)}"
            )
        self.used.append(name)
        return RawTensor(name, form, found, data)
