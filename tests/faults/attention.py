"""Faults of attention and of the KV pages: segments, windows, rounding, folds, layouts, scales."""

from __future__ import annotations

from tests.faults.fault import Fault

SEGMENT, PAGED, VARLEN, APPEND, ROWS, SOFTMAX, SHARED, DOT = (
    f"csrc_common/attention/{name}.inl.h"
    for name in (
        *("segment", "paged_rows", "varlen_units", "kv_append", "rows", "softmax", "paged_units"),
        "dot32",
    )
)
RELATIVE = "csrc_common/attention/relative_units.inl.h"
DISTANCES = "tests/kernels/test_relative_attention.py::"
FP8, COPY = "csrc_common/vec/fp8.h", "csrc_common/attention/copy_blocks.inl.h"
TESTS = "tests/kernels/test_paged_attention.py::"
CODES = "tests/kernels/test_kv_append.py::test_e4m3_codes_are_the_nearest_and_never_nan_or_minus_zero"
STORED = "tests/kernels/test_kv_append.py::test_pages_hold_what_the_reference_holds"
LENGTHS, HEADS = TESTS + "test_lengths_around_blocks_and_segments", TESTS + "test_head_sizes_and_shared_heads"
OPTIONS = TESTS + "test_softcap_sinks_and_alibi"
WINDOW = TESTS + "test_a_window_hides_what_lies_before_it"

SHARE = "tests/kernels/test_shared_segments.py::test_threads_that_share_a_sequence_change_nothing"
SUM = """\
  for (int i = 0; i < W::kLanes / V::kLanes; ++i) {
    auto& lane = sum.part[i % (16 / V::kLanes)];
    lane = V::add(lane, e.part[i]);
  }
"""
SCALE = "  if constexpr (KV::kIsScaled) e = W::mul(e, W::load(kv.v_scales(at / kBlock) + at % kBlock));\n"

FAULTS = [
    Fault(
        "softmax_segment_256",
        ROWS,
        "kSegment = 512;",
        "kSegment = 256;",
        LENGTHS,
        "bf16__avx2 and 32",
        is_quick=True,
    ),
    Fault(
        "window_one_too_wide",
        PAGED,
        "row.position - a.window + 1)",
        "row.position - a.window)",
        WINDOW,
        "avx2 and bf16",
        is_quick=True,
    ),
    Fault(
        "attention_weights_truncated",
        SOFTMAX,
        "V::iadd(u, V::iadd(odd, V::ibroadcast(0x7FFF)))",
        "u",
        HEADS,
        "bf16__avx2 and 64",
        is_quick=True,
    ),
    Fault(
        "values_beyond_the_length_read",
        PAGED,
        "if (valid >= kBlock) return {tile, stride, ahead};",
        "return {tile, stride, ahead};",
        LENGTHS,
        "f32__avx2 and 32",
        is_quick=True,
    ),
    Fault(
        "values_read_from_the_neighbour_token",
        "csrc_avx/attention/pairs_native.inl.h",
        "return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16));",
        "return odd(b, i, lane);",
        HEADS,
        "bf16__avx2 and 32",
    ),
    Fault(
        "fold_not_fused",
        SEGMENT,
        "vec::fma_scalar(out[d], a, part[d] * b)",
        "out[d] * a + part[d] * b",
        LENGTHS,
        "f32__avx2 and 32",
    ),
    Fault(
        "sink_without_rescaling",
        SEGMENT,
        "out[d] = out[d] * a;",
        "out[d] = out[d] * 1.0f;",
        OPTIONS,
        "f32__avx2 and sinks",
    ),
    Fault(
        "alibi_slope_of_the_first_head",
        PAGED,
        "a.alibi ? a.alibi[head]",
        "a.alibi ? a.alibi[0]",
        OPTIONS,
        "f16__avx2 and alibi",
    ),
    Fault(
        "softcap_without_division",
        SOFTMAX,
        "vec::tanh<V>(V::div(x, cap))",
        "vec::tanh<V>(V::mul(x, V::div(V::broadcast(1.0f), cap)))",
        OPTIONS,
        "f32__avx2 and all",
    ),
    Fault(
        "int8_key_scale_left_out",
        SOFTMAX,
        "x = V::mul(x, V::load(kv.k_scales(block) + i));",
        "",
        HEADS,
        "int8__avx2 and 32",
    ),
    Fault(
        "int8_value_scale_before_the_sum",
        SOFTMAX,
        SUM + SCALE,
        SCALE + SUM,
        HEADS,
        "int8__avx2 and 32",
    ),
    Fault(
        "keys_hidden_from_the_last_row",
        PAGED,
        "row.high = row.position;",
        "row.high = row.position - (r + 1 == tile.num_rows);",
        HEADS,
        "f32__avx2 and 32",
    ),
    Fault(
        "varlen_window_one_too_wide",
        VARLEN,
        "smaller(visible - 1, row.position + a.window)",
        "smaller(visible - 1, row.position + a.window + 1)",
        "tests/kernels/test_varlen_attention.py::test_a_window_cuts_both_ways",
    ),
    Fault(
        "varlen_causal_sees_the_next",
        VARLEN,
        "row.high = a.causal ? row.position :",
        "row.high = a.causal ? smaller(length - 1, row.position + 1) :",
        "tests/kernels/test_varlen_attention.py::test_causal_queries_see_nothing_behind_them",
    ),
    Fault(
        "varlen_bias_not_clamped_behind",
        SOFTMAX,
        "lanes[i] = row.bias[larger(-rule.reach, smaller(rule.reach, apart + i))];",
        "lanes[i] = row.bias[larger(-rule.reach, smaller(rule.reach - 1, apart + i))];",
        "tests/kernels/test_varlen_attention.py::test_a_bias_is_added_by_distance_and_ends_at_its_reach",
    ),
    Fault(
        "relative_distances_not_clamped_behind",
        RELATIVE,
        "a_.by_distance[a_.reach + larger(-a_.reach, smaller(a_.reach, low + i))]",
        "a_.by_distance[a_.reach + larger(-a_.reach, smaller(a_.reach - 1, low + i))]",
        DISTANCES + "test_long_sequences_go_over_borders_and_beyond_the_reach",
    ),
    Fault(
        "relative_shared_buckets_read_as_their_own",
        RELATIVE,
        "if (at[V::kLanes - 1] - at[0] == V::kLanes - 1) return",
        "if (at[V::kLanes - 1] - at[0] >= V::kLanes / 2) return",
        DISTANCES + "test_ragged_sequences_have_the_reference_bits",
    ),
    Fault(
        "relative_rows_not_rounded",
        RELATIVE,
        "if constexpr (rounds) load_query<V, true>(turned_, turned_, kBlock * dim_);",
        "",
        DISTANCES + "test_ragged_sequences_have_the_reference_bits",
        "bf16__avx2",
    ),
    Fault(
        "varlen_alibi_one_sided",
        SOFTMAX,
        "if (rule.is_two_sided) distance = V::neg(V::abs(distance));",
        "",
        "tests/kernels/test_varlen_attention.py::test_alibi_counts_the_distance_both_ways",
    ),
    Fault(
        "shared_maximum_of_the_first_row",
        SHARED,
        "row.segment_max = kept[rows * dim + 2 * r];",
        "row.segment_max = kept[rows * dim];",
        SHARE,
        "bf16__avx2 and plain",
        is_quick=True,
    ),
    Fault(
        "shared_segments_folded_from_the_last",
        SHARED,
        "for (int64_t i = 0; i < unit.num_segments; ++i, kept += rows * partial_row_floats(dim))",
        "kept += (unit.num_segments - 1) * rows * partial_row_floats(dim);\n"
        "  for (int64_t i = unit.num_segments - 1; i >= 0; --i, kept -= rows * partial_row_floats(dim))",
        SHARE,
        "bf16__avx2 and plain",
    ),
    Fault(
        "shared_sum_is_the_maximum",
        SHARED,
        "row.segment_sum = kept[rows * dim + 2 * r + 1];",
        "row.segment_sum = kept[rows * dim + 2 * r];",
        SHARE,
        "bf16__avx2 and plain",
    ),
    Fault(
        "shared_segments_kept_from_the_claim_on",
        SHARED,
        "results + (segment - unit.first_segment)",
        "results + (segment - first)",
        SHARE,
        "bf16__avx2 and plain",
    ),
    Fault(
        "shared_counter_left_as_it_is",
        SHARED,
        "num_done.store(0, std::memory_order_relaxed);",
        "",
        "tests/kernels/test_shared_segments.py::test_counters_are_zero_again_after_every_step",
        "counters",
        levels=("scalar",),
    ),
    Fault(
        "shared_from_the_first_segment_despite_a_window",
        "csrc_common/attention/units.inl.h",
        "unit.first_segment = first_visible(seq_) / kSegment;",
        "unit.first_segment = 0;",
        "tests/kernels/test_shared_segments.py::test_a_window_over_several_segments_is_shared_alike",
        "bf16__avx2",
    ),
    Fault(
        "row_left_out_between_two_tiles",
        DOT,
        "r += kTile) dot32_tile",
        "r += kTile + 1) dot32_tile",
        HEADS,
        "bf16__avx2 and 64",
    ),
    Fault("kv_int8_scale_by_128", APPEND, "n, 127.0f)", "n, 128.0f)", STORED, "int8__avx2 and 32", is_quick=True),
    Fault("kv_fp8_scale_by_240", APPEND, "n, 448.0f)", "n, 240.0f)", STORED, "fp8__avx2 and 32"),
    Fault("kv_fp8_code_of_minus_zero", FP8, "code == 0 ? 0u : code |", "code |", CODES, "avx2"),
    Fault("kv_fp8_ties_away_from_even", FP8, "magnitude + 0x7FFFFu +", "magnitude + 0x80000u +", CODES, "avx2"),
    Fault("kv_fp8_denormal_as_zero", FP8, "? denormal : normal", "? 0u : normal", CODES, "avx2"),
    Fault(
        "kv_int8_code_truncated",
        APPEND,
        "__builtin_rintf(x[i] / s)",
        "__builtin_truncf(x[i] / s)",
        STORED,
        "int8__avx2 and 32",
    ),
    Fault(
        "kv_value_in_its_pair_s_other_slot", APPEND, "+ token % 2;", "+ (token + 1) % 2;", STORED, "bf16__avx2 and 32"
    ),
    Fault(
        "kv_float32_denormal_kept",
        APPEND,
        "y[i] = vec::F32x1::abs(x[i]) < 0x1p-126f ? vec::F32x1::copysign(0.0f, x[i]) : x[i];",
        "std::memcpy(y + i, x + i, 4);",
        STORED,
        "f32__avx2 and 32",
    ),
    Fault(
        "kv_nan_row_has_a_number_for_scale",
        APPEND,
        "has_nan |= x[i] != x[i];",
        "",
        "tests/kernels/test_kv_append.py::test_a_nan_poisons_its_row_of_codes_only",
    ),
    Fault(
        "copied_blocks_out_of_order",
        COPY,
        "source = a.pairs[1 + 2 * i], target = a.pairs[2 + 2 * i]",
        "source = a.pairs[2 * a.pairs[0] - 1 - 2 * i], target = a.pairs[2 * a.pairs[0] - 2 * i]",
        "tests/kernels/test_copy_blocks.py::test_pages_are_copied_in_order_and_no_other_is_touched",
        "1 or 2",
        levels=("scalar",),
    ),
]
