"""Checkpoints of compressed-tensors (vLLM, llm-compressor): what config.json says about quantized weights, and the weights.

Served are `int-quantized` W8A8 (int8 weights with one scale per output, dynamic per-token int8 inputs: format w8a8) and
`pack-quantized` W4A16 in groups of 32, 64 or 128, symmetric or not (i4g32, i4g64, i4g128; their products take inputs as
int8 per group). Everything else in `quantization_config` that could change a result is one ModelError naming the key.

Which modules are quantized is read off the tensors (a `weight_packed`, or an int8 `weight`), and each must fit a declared
group; so `targets` and `ignore` are never matched as patterns, which a hostile file could make arbitrarily slow.
Source: github.com/vllm-project/compressed-tensors, whose names and layouts these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.reader import Description
from octavo.platforms.stored import FLOAT_FORMATS
from octavo.platforms.types import RawTensor
from octavo.quant.formats import format_named
from octavo.quant.load import as_array

KEY = "quantization_config"
GROUPS = (32, 64, 128)
_FORMATS = ("int-quantized", "pack-quantized", "mixed-precision")
_CODES_PER_WORD = 8


@dataclass(frozen=True)
class Scheme:
    """How one group of modules is quantized: a format of `octavo.quant`, with or without zero points."""

    form: str
    has_zeros: bool = False


def read_schemes(cfg: Description) -> tuple[Scheme, ...]:
    """The schemes that a config.json declares; empty where it declares none."""
    value = cfg.get(KEY)
    if value is None:
        return ()
    whole = _table(cfg, KEY, value)
    whole.expect("quant_method", "compressed-tensors")
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
    weights.expect("type", "int")
    weights.expect("dynamic", False)
    weights.expect("actorder", False, "weight", "static")  # columns reordered per group would need their index
    weights.expect("block_structure")
    weights.skip(
        "observer", "observer_kwargs", "scale_dtype", "zp_dtype"
    )  # how scales were found; tensors say their type
    bits, strategy = weights.whole("num_bits"), weights.get("strategy")
    is_symmetric = weights.flag("symmetric", True)
    if (packing, bits, strategy) == ("int-quantized", 8, "channel"):
        weights.expect("symmetric", True)
        weights.expect("group_size", -1)
        _expect_token_inputs(_table(group, "input_activations", inputs))
        made = Scheme("w8a8")
    elif (packing, bits, strategy) == ("pack-quantized", 4, "group"):
        size = weights.whole("group_size")
        if size not in GROUPS:
            raise weights.bad("group_size", size, f"one of {', '.join(map(str, GROUPS))}")
        if inputs is not None:
            raise group.bad("input_activations", inputs, "null for 4-bit weights (W4A16)")
        made = Scheme(f"i4g{size}", not is_symmetric)
    else:
        raise ModelError(
            f"{group.where}: weights of {bits} bits, strategy {strategy!r}, format {packing!r}; served are 8 bits by channel, "
            "int-quantized (W8A8), and 4 bits by group, pack-quantized (W4A16)"
        )
    weights.finish()
    group.finish()
    return made


def _expect_token_inputs(inputs: Description) -> None:
    """Dynamic, symmetric int8 per token."""
    for key, wanted in (
        ("num_bits", 8),
        ("type", "int"),
        ("symmetric", True),
        ("strategy", "token"),
        ("dynamic", True),
    ):
        value = inputs.get(key)
        if value != wanted or type(value) is not type(wanted):
            raise inputs.bad(key, value, f"{wanted!r} (dynamic symmetric int8 per token is what W8A8 is served with)")
    inputs.expect("group_size")
    inputs.expect("block_structure")
    inputs.expect("actorder")
    inputs.skip("observer", "observer_kwargs", "scale_dtype", "zp_dtype")
    inputs.finish()


def has_matrix(checkpoint: Checkpoint, stem: str) -> bool:
    """Whether the checkpoint holds a weight of this module, plain or packed."""
    return f"{stem}.weight" in checkpoint or f"{stem}.weight_packed" in checkpoint


def is_quantized(checkpoint: Checkpoint, stem: str) -> bool:
    """Whether a module's weight is stored as compressed-tensors stores integers."""
    name = f"{stem}.weight"
    return f"{name}_packed" in checkpoint or (name in checkpoint and checkpoint.info(name).format == "i8")


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
        scale = self.take("weight_scale", *FLOAT_FORMATS)
        scheme = self.fitting(schemes, is_packed, scale.shape)
        num_out, num_in = self.shape
        groups = format_named(scheme.form).num_groups(num_in)
        if is_packed:
            self.check_stated_shape()
            codes = self.take("weight_packed", "i32", shape=(num_out, -(-num_in // _CODES_PER_WORD)))
        else:
            codes = self.take("weight", "i8", shape=self.shape)
        zeros = self.zeros(groups) if scheme.has_zeros else None
        if not scheme.has_zeros and self.has("weight_zero_point"):
            self.check_no_zeros()
        scales = RawTensor(scale.name, scale.format, (num_out, groups), scale.data)
        return RawTensor(codes.name, scheme.form, self.shape, codes.data, scales, zeros), self.used

    def fitting(self, schemes: tuple[Scheme, ...], is_packed: bool, scale_shape: tuple[int, ...]) -> Scheme:
        """The declared scheme whose form and number of scales these tensors have."""
        num_out, num_in = self.shape
        for scheme in schemes:
            form = format_named(scheme.form)
            fits = scale_shape in ((num_out, form.num_groups(num_in)), (num_out,) if not form.group else ())
            if fits and is_packed == (form.bits == 4) and scheme.has_zeros <= self.has("weight_zero_point"):
                return scheme
        declared = ", ".join(scheme.form + (" with zero points" if scheme.has_zeros else "") for scheme in schemes)
        raise ModelError(
            f"{self.stem}: {'packed 4-bit' if is_packed else 'int8'} weights [{num_out}, {num_in}] with scales "
            f"{list(scale_shape)} fit no group that {KEY} declares ({declared or 'there is none'})"
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
