"""unpack, codes and pack of every GGUF format, against the gguf package and against each other."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.engine.errors import ModelError
from octavo.quant import load, scale_min
from octavo.quant.formats import FORMATS

QUANTIZED = [
    f.name for f in FORMATS if f.is_quantized and f.is_supported and f.code == "int" and not f.has_scales_apart
]
COMPUTED = ["f32", "f16", "bf16", *QUANTIZED]
SHAPE = (12, 1024)


def _gguf_values(name: str, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    kind = gguf.GGMLQuantizationType[name.upper()]
    rows = raw.reshape(*shape[:-1], -1)
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(rows, kind).reshape(shape)


def _same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal bits, except that any NaN equals any NaN (payloads are outside every contract)."""
    left, right = np.ascontiguousarray(left, np.float32), np.ascontiguousarray(right, np.float32)
    both_nan = np.isnan(left) & np.isnan(right)
    return bool(np.all((left.view(np.uint32) == right.view(np.uint32)) | both_nan))


def _edge_blocks(name: str) -> np.ndarray:
    """Whole blocks of one byte value (all 256), and blocks whose float16 fields are special numbers."""
    form = load.format_named(name)
    constant = np.repeat(np.arange(256, dtype=np.uint8)[:, None], form.block_bytes, axis=1)
    rng = np.random.default_rng(5)
    special = rng.integers(0, 256, (64, form.block_bytes), np.uint8)
    halves = np.array([0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 65504, -65504, np.inf, -np.inf, np.nan], np.float16)
    for row, block in enumerate(special):
        for at in range(0, form.block_bytes - 1, 2):
            if rng.random() < 0.5:
                block[at : at + 2] = halves[(row + at) % len(halves)].reshape(1).view(np.uint8)
    return np.concatenate([constant, special])


@pytest.mark.parametrize("name", COMPUTED)
def test_unpack_has_the_bits_of_the_gguf_package_on_random_blocks(name: str) -> None:
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, load.format_named(name).num_bytes(SHAPE), np.uint8)
    assert _same_bits(load.unpack(name, raw, SHAPE), _gguf_values(name, raw, SHAPE))


@pytest.mark.parametrize("name", COMPUTED)
def test_unpack_has_the_bits_of_the_gguf_package_on_edge_blocks(name: str) -> None:
    raw = _edge_blocks(name)
    shape = (len(raw), load.format_named(name).block_size)
    assert _same_bits(load.unpack(name, raw, shape), _gguf_values(name, raw, shape))


def test_unpack_has_known_values_of_one_hand_made_block() -> None:
    half_two = np.array([2.0], np.float16).view(np.uint8)
    q4_0 = np.concatenate([half_two, np.array([0x21, 0xF0] + [0x88] * 14, np.uint8)])
    values = load.unpack("q4_0", q4_0, (32,))
    assert values[[0, 1, 2, 16, 17, 18]].tolist() == [-14.0, -16.0, 0.0, -12.0, 14.0, 0.0]
    q4_1 = np.concatenate([half_two, half_two, np.array([0x21, 0xF0] + [0x00] * 14, np.uint8)])
    assert load.unpack("q4_1", q4_1, (32,))[[0, 1, 16, 17]].tolist() == [4.0, 2.0, 6.0, 32.0]


@pytest.mark.parametrize("name", QUANTIZED)
def test_codes_put_together_have_the_bits_of_unpack(name: str) -> None:
    rng = np.random.default_rng(2)
    shape = (2, 5, 768)
    raw = rng.integers(0, 256, load.format_named(name).num_bytes(shape), np.uint8)
    parts = load.codes(name, raw, shape)
    assert _same_bits(parts.dequantize(), load.unpack(name, raw, shape))


@pytest.mark.parametrize("name", QUANTIZED)
def test_codes_have_documented_shapes_types_and_ranges(name: str) -> None:
    form = load.format_named(name)
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 256, form.num_bytes(SHAPE), np.uint8)
    parts = load.codes(name, raw, SHAPE)
    rows, columns = SHAPE
    low, high = {
        "q8_0": (-128, 127), "q3_k": (-4, 3), "q6_k": (-32, 31),
    }.get(name, (0, (1 << form.bits) - 1))  # fmt: skip
    assert parts.codes.shape == SHAPE
    assert parts.codes.dtype == (np.int8 if low < 0 else np.uint8)
    assert (parts.codes.min(), parts.codes.max()) == (low, high)
    assert parts.d.shape == (rows, columns // form.block_size) and parts.d.dtype == np.float32
    assert (parts.m is not None) == (form.zero == "f16 min")
    has_sub_mins = form.zero in ("f16*u4 min", "f16*u6 min")
    assert (parts.dmin is not None) == (parts.sub_mins is not None) == has_sub_mins
    if parts.sub_scales is not None:
        assert parts.sub_scales.shape == (rows, columns // form.group)
        ranges = {"f16*u4": (0, 15), "f16*u6": (0, 63), "f16*i6": (-32, 31), "f16*i8": (-128, 127)}
        assert (parts.sub_scales.min(), parts.sub_scales.max()) == ranges[form.scale]


@pytest.mark.parametrize("name", QUANTIZED)
def test_integer_sums_of_the_formula_fit_int32(name: str) -> None:
    form = load.format_named(name)
    raw = np.full(form.block_bytes, 0xFF, np.uint8)
    largest = 0
    for fill in range(256):
        parts = load.codes(name, np.full_like(raw, fill), (form.block_size,))
        codes = parts.codes.astype(np.int64) - form.zero_point
        scales = 1 if parts.sub_scales is None else np.repeat(parts.sub_scales.astype(np.int64), form.group)
        largest = max(largest, int(np.abs(codes * scales).sum()) * 127)
    assert largest < 1 << 31


def tensors() -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    normal = rng.standard_normal((6, 512)).astype(np.float32)
    cases = [normal * scale for scale in (1e-7, 1e-4, 0.02, 1.0, 300.0)]
    cases.append(np.abs(normal) + 5)  # all positive, far from zero
    cases.append(-np.abs(normal) - 5)
    cases.append(rng.standard_t(2, (6, 512)).astype(np.float32).clip(-50, 50))  # outliers
    cases.append(np.sign(normal))  # both ends are peaks
    cases.append(np.zeros((1, 256), np.float32))
    cases.append(np.full((1, 256), 0.37, np.float32))
    mixed = normal.copy()
    mixed[:, ::32] *= 1000  # groups of very different size in one block
    mixed[:, :256:7] = 0
    cases.append(mixed)
    return cases


@pytest.mark.parametrize("name", COMPUTED)
def test_pack_stays_within_its_documented_bound(name: str) -> None:
    form = load.format_named(name)
    relative, absolute = load.error_bound(name)
    for values in tensors():
        raw = load.pack(name, values)
        assert raw.shape == (*values.shape[:-1], form.num_bytes(values.shape[-1:]))
        back = load.unpack(name, raw, values.shape)
        blocks = max(form.block_size, 1)
        peak = np.repeat(np.abs(values.reshape(-1, blocks)).max(axis=1), blocks).reshape(values.shape)
        assert np.all(np.abs(back - values) <= relative * peak + absolute), name


@pytest.mark.parametrize("name", QUANTIZED)
def test_pack_has_the_usual_error_on_a_normal_tensor(name: str) -> None:
    """A wrong nibble order or scale would be far above these root mean squares."""
    form = load.format_named(name)
    values = np.random.default_rng(6).standard_normal((32, 1024)).astype(np.float32)
    error = load.unpack(name, load.pack(name, values), values.shape) - values
    typical = {2: 0.36, 3: 0.24, 4: 0.12, 5: 0.06, 6: 0.03, 8: 0.008}[form.bits]
    assert np.sqrt(np.mean(error**2)) < typical


@pytest.mark.parametrize("name", QUANTIZED)
def test_packing_what_was_unpacked_changes_nothing_more(name: str) -> None:
    """Codes survive a second trip within one step: the layout written is the layout read."""
    values = np.random.default_rng(7).standard_normal((4, 512)).astype(np.float32)
    once = load.unpack(name, load.pack(name, values), values.shape)
    twice = load.unpack(name, load.pack(name, once), values.shape)
    relative, absolute = load.error_bound(name)
    assert np.abs(twice - once).max() <= relative * np.abs(values).max() + absolute
    assert np.mean(once == twice) > 0.5 or name.endswith("k")


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_pack_refuses_what_the_format_cannot_hold(name: str) -> None:
    with pytest.raises(ModelError, match="not finite"):
        load.pack(name, np.full((1, 256), np.nan, np.float32))
    with pytest.raises(ModelError, match="largest float16"):
        load.pack(name, np.linspace(-1e9, 1e9, 256, dtype=np.float32).reshape(1, 256))
    with pytest.raises(ModelError, match="blocks of"):
        load.pack(name, np.zeros((2, 40), np.float32))


def test_bf16_packing_rounds_half_even_flushes_and_quiets() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x007FFFFF, 0x807FFFFF, 0x7F800001, 0x7F7FFFFF], np.uint32)
    packed = load.pack("bf16", bits.view(np.float32)).view(np.uint16).tolist()
    assert packed[:5] == [0x3F80, 0x3F82, 0x3F81, 0x0000, 0x8000]
    assert packed[5] & 0x7FC0 == 0x7FC0
    assert packed[6] == 0x7F80


def test_f16_packing_refuses_overflow_but_keeps_infinity() -> None:
    assert np.isinf(load.unpack("f16", load.pack("f16", np.array([np.inf], np.float32)), (1,)))[0]
    with pytest.raises(ModelError, match="65504"):
        load.pack("f16", np.array([1e6], np.float32))


def test_scale_min_field_round_trips() -> None:
    rng = np.random.default_rng(8)
    scales, minima = rng.integers(0, 64, (2, 50, 8), np.uint8)
    field = scale_min.store(scales, minima)
    assert field.shape == (50, scale_min.NUM_BYTES)
    back_scales, back_minima = scale_min.load(field)
    assert np.array_equal(back_scales, scales) and np.array_equal(back_minima, minima)


def test_wrong_byte_counts_are_refused() -> None:
    with pytest.raises(ModelError, match="takes 144 bytes"):
        load.unpack("q4_k", np.zeros(143, np.uint8), (256,))
    with pytest.raises(ModelError, match="uint8"):
        load.codes("q4_0", np.zeros(18, np.int8), (32,))


def test_bf16_packing_does_not_depend_on_where_in_a_long_tensor_a_value_lies() -> None:
    """Values are rounded in runs; special ones change nothing of their neighbours."""
    special = np.array(
        [0x00000001, 0x80000001, 0x7F800001, 0xFFC00000, 0x7F800000, 0, 0x80000000, 0x7F7FFFFF], np.uint32
    )
    bits = np.random.default_rng(5).integers(0, 1 << 32, 70000, dtype=np.uint64).astype(np.uint32)
    bits[32760:32776] = np.tile(special, 2)
    packed = load.pack("bf16", bits.view(np.float32).reshape(7, -1)).view(np.uint16).reshape(-1)
    one_by_one = [load.pack("bf16", bits[i : i + 1].view(np.float32)).view(np.uint16)[0] for i in range(32700, 32800)]
    assert packed[32700:32800].tolist() == one_by_one
    assert (packed[:100] == load.pack("bf16", bits[:100].view(np.float32)).view(np.uint16)).all()
