"""Faults of packing checkpoint rows into panels."""

from __future__ import annotations

from tests.faults.fault import Fault

PACK, BLOCKS = "csrc_common/ref/pack.inl.h", "csrc_common/packed/gguf_blocks.inl.h"
SHARED, APART = "csrc_common/ref/pack_panels.inl.h", "csrc_common/ref/pack_apart.inl.h"
PLANES = "csrc_common/ref/pack_planes.inl.h"
TESTS = "tests/kernels/test_pack.py::"
PANELS = TESTS + "test_panels_hold_every_code_and_scale_of_the_rows"
APART_PANELS = TESTS + "test_panels_hold_codes_scales_and_zero_points_kept_apart"
DENSE = TESTS + "test_dense_rows_of_any_length_and_transposed_sources"

FAULTS = [
    Fault(
        "pack_nibbles_swapped",
        PACK,
        "(a & kLow) | (b & kLow) << 4, high",
        "(b & kLow) | (a & kLow) << 4, high",
        PANELS,
        "pack_q4_k__avx2",
        is_quick=True,
    ),
    Fault(
        "pack_lane_of_stacked_rows_lost",
        SHARED,
        "p * kPanel + low - a.first_row",
        "p * kPanel - a.first_row",
        TESTS + "test_stacked_tensors_become_one_weight",
        "pack_f32__avx2",
    ),
    Fault(
        "pack_tail_not_zeroed",
        PACK,
        "if (count < 32 || zero_to > high) {",
        "if (zero_to > high) {",
        DENSE,
        "pack_bf16__avx2",
    ),
    Fault(
        "pack_minimum_in_place_of_scale",
        PACK,
        "if (Gguf::kMin) put_half(record + 288, lane, half_at(block + 2));",
        "if (Gguf::kMin) put_half(record + 288, lane, half_at(block));",
        PANELS,
        "pack_q4_1__avx2",
    ),
    Fault(
        "pack_fifth_bit_of_the_neighbour",
        BLOCKS,
        "(high[byte] * 0x0101010101010101ull)",
        "(high[byte ^ 1] * 0x0101010101010101ull)",
        PANELS,
        "pack_q5_0__avx2",
    ),
    Fault(
        "pack_sub_scales_high_bits_swapped",
        BLOCKS,
        "(f[8 + i] & 15) | (f[i] >> 6) << 4",
        "(f[8 + i] & 15) | (f[4 + i] >> 6) << 4",
        PANELS,
        "pack_q4_k__avx2",
    ),
    Fault(
        "pack_high_plane_of_low_bits", PLANES, "codes[v] >> from & kMask", "codes[v] & kMask", PANELS, "pack_q6_k__avx2"
    ),
    Fault(
        "pack_minimum_not_beside_its_scale",
        PLANES,
        "scale | b.sub_mins[g] << 4",
        "scale | b.sub_mins[0] << 4",
        PANELS,
        "pack_q2_k__avx2",
    ),
    Fault(
        "pack_what_is_not_finite_unseen",
        SHARED,
        "if (is_bad) __atomic_store_n",
        "if (false && is_bad) __atomic_store_n",
        TESTS + "test_what_is_not_finite_is_noted_wherever_it_stands",
        "pack_bf16__avx2",
        is_quick=True,
    ),
    Fault(
        "pack_apart_halves_swapped",
        APART,
        "(first & 15) | (second & 15) << 4",
        "(second & 15) | (first & 15) << 4",
        APART_PANELS,
        "pack_i4__avx2",
    ),
    Fault(
        "pack_apart_zero_points_of_the_first_group",
        APART,
        "zero = a.zeros[from * a.groups + g]",
        "zero = a.zeros[from * a.groups]",
        APART_PANELS,
        "pack_i4__avx2",
    ),
    Fault("pack_apart_codes_as_stored", APART, "code ^= kByteFlip", "code ^= 0", APART_PANELS, "pack_w8a8__avx2"),
]
