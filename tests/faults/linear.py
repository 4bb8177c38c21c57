"""Faults of the linear kernels: float chains, integer sums, zero points, minima, scales, epilogue, prepared inputs."""

from __future__ import annotations

from tests.faults.fault import Fault

DENSE, GROUPED, K, BYTES = (
    f"csrc_avx/linear/{name}.inl.h" for name in ("linear_dense", "linear_grouped", "linear_k", "bytes")
)
EPILOGUE, PREPARE, AVX2 = "csrc_common/ref/epilogue.inl.h", "csrc_common/ref/prepare.inl.h", "csrc_common/vec/avx2.h"
TESTS = "tests/kernels/test_linear.py::"
BITS = TESTS + "test_bits_of_the_reference_for_every_number_of_rows_and_outputs"
INPUTS = TESTS + "test_bits_of_the_reference_for_any_number_of_inputs"
GROUPS = TESTS + "test_bits_of_the_reference_for_one_and_many_groups"
EPILOGUES = TESTS + "test_epilogue_in_the_contracts_order"
TRUE_QUOTIENTS = "tests/kernels/test_prepare.py::test_codes_are_true_quotients"
CODES = "tests/kernels/test_prepare.py::test_int8_codes_scales_and_sums"

FAULTS = [
    Fault(
        "dot32_even_and_odd_swapped",
        DENSE,
        "V::from_bits(i % 2 ? V::iand",
        "V::from_bits(i % 2 == 0 ? V::iand",
        INPUTS,
        "linear_bf16__avx2",
        is_quick=True,
    ),
    Fault(
        "dot32_sum_reassociated",
        DENSE,
        "V::add(V::load(at), V::add(even.sum[r][j], odd.sum[r][j]))",
        "V::add(V::add(V::load(at), even.sum[r][j]), odd.sum[r][j])",
        INPUTS,
        "linear_f32__avx2",
    ),
    Fault(
        "k_tail_dropped",
        DENSE,
        "blocks = (count + 31) / 32",
        "blocks = count / 32",
        INPUTS,
        "linear_f32__avx2",
        is_quick=True,
    ),
    Fault(
        "dense_neighbour_row_read",
        DENSE,
        "(s.row + r) * a.ldx + k",
        "(s.row + r - (r > 0)) * a.ldx + k",
        BITS,
        "linear_f32__avx2",
        is_quick=True,
    ),
    Fault(
        "dense_piece_weights_not_advanced",
        DENSE,
        "panel_bytes + k / 32 * record_bytes(Dense::kKind, 0)",
        "panel_bytes",
        INPUTS,
        "linear_f16__avx2",
    ),
    Fault(
        "q4_zero_point_seven",
        GROUPED,
        "(flags & kZero8) ? 8 : 0",
        "(flags & kZero8) ? 7 : 0",
        GROUPS,
        "linear_q4g32__avx2",
        is_quick=True,
    ),
    Fault("q4_minimum_subtracted", GROUPED, "V::mul(s, m)", "V::neg(V::mul(s, m))", GROUPS, "linear_q4g32__avx2"),
    Fault(
        "q4_nibbles_swapped",
        GROUPED,
        "low[p] = and_bits(codes, mask);\n          high[p] = high_nibbles(codes, mask);",
        "high[p] = and_bits(codes, mask);\n          low[p] = high_nibbles(codes, mask);",
        GROUPS,
        "linear_q4g32__avx2",
        is_quick=True,
    ),
    Fault(
        "group_scales_applied_one_by_one",
        GROUPED,
        "V::fma(V::cvt_f32(sum), V::mul(s, d), acc[r][p])",
        "V::fma(V::mul(V::cvt_f32(sum), s), d, acc[r][p])",
        GROUPS,
        "linear_q8g32__avx2",
        is_quick=True,
    ),
    Fault(
        "group_fma_split",
        GROUPED,
        "V::fma(V::cvt_f32(sum), V::mul(s, d), acc[r][p])",
        "V::add(V::mul(V::cvt_f32(sum), V::mul(s, d)), acc[r][p])",
        GROUPS,
        "linear_q8g32__avx2",
    ),
    Fault(
        "int8_sums_saturate",
        BYTES,
        "V::iadd(acc, madd16(maddubs(codes, x), words_of(1)))",
        "V::iadd(acc, madd16(_mm256_adds_epi16(maddubs(codes, x), maddubs(codes, x)), words_of(1)))",
        TESTS + "test_integer_sums_never_saturate",
        "linear_q8g32__avx2",
    ),
    Fault(
        "int8_minus_128_not_taken_as_128",
        BYTES,
        "mac_wide(acc, abs8(codes), with_sign8(x, codes))",
        "mac_wide(acc, _mm256_min_epu8(abs8(codes), bytes_of(127)), with_sign8(x, codes))",
        TESTS + "test_two_and_sixty_four_full_products",
        "linear_q8g32__avx2",
    ),
    Fault(
        "k_minimum_added",
        K,
        "V::neg(V::mul(V::broadcast(scales[r][b]), low))",
        "V::mul(V::broadcast(scales[r][b]), low)",
        GROUPS,
        "linear_q4k__avx2",
    ),
    Fault(
        "q4k_sub_scale_of_the_neighbour",
        K,
        "scale_lanes(widen_u8(sub_scales + 16 * sub",
        "scale_lanes(widen_u8(sub_scales + 16 * (sub ^ 1)",
        GROUPS,
        "linear_q4k__avx2",
    ),
    Fault(
        "q8k_second_minimum_is_the_first",
        K,
        "V::shl<16>(widen_u8(at + 16))",
        "V::shl<16>(widen_u8(at))",
        GROUPS,
        "linear_q8k__avx2",
    ),
    Fault(
        "bias_before_scale",
        EPILOGUE,
        "if (a.scale != 1.0f) v = V::mul(v, V::broadcast(a.scale));\n    if (a.bias) v = V::add(v, load(a.bias));",
        "if (a.bias) v = V::add(v, load(a.bias));\n    if (a.scale != 1.0f) v = V::mul(v, V::broadcast(a.scale));",
        EPILOGUES,
        "linear_bf16__avx2 and none",
    ),
    Fault(
        "gelu_is_the_tanh_form",
        EPILOGUE,
        "case kGelu: return vec::gelu<V>(x);",
        "case kGelu: return vec::gelu_tanh<V>(x);",
        EPILOGUES,
        "linear_q4g32__avx2 and gelu and not tanh",
    ),
    Fault("input_scale_by_128", PREPARE, "peak(x, n) / 127.0f", "peak(x, n) / 128.0f", CODES, "prepare_i8g32__avx2"),
    Fault(
        "input_codes_by_reciprocal",
        PREPARE,
        "V::div(V::load(x + i + p), divisor)",
        "V::mul(V::load(x + i + p), V::div(V::broadcast(1.0f), divisor))",
        TRUE_QUOTIENTS,
        "prepare_i8g256__avx2",
    ),
    Fault(
        "input_infinity_quantized",
        PREPARE,
        "return bad[0] == 0.0f ? lanes[0]",
        "return bad[0] < 1.0f || true ? lanes[0]",
        "tests/kernels/test_prepare.py::test_a_group_that_is_not_finite_has_scale_nan_and_hurts_no_other",
        "prepare_i8g32__avx2",
    ),
    Fault(
        "bf16_truncated_not_rounded",
        AVX2,
        "_mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, ibroadcast(0x7FFF))), 16)",
        "_mm256_srli_epi32(u, 16)",
        "tests/kernels/test_prepare.py::test_bf16_rounds_half_to_even_and_pads_with_zeros",
        "avx2",
        is_quick=True,
        units=("csrc_avx/linear/prepare__avx2.cpp",),
    ),
    Fault(
        "bf16_ties_away_from_even",
        AVX2,
        "_mm256_add_epi32(odd, ibroadcast(0x7FFF))",
        "ibroadcast(0x8000)",
        "tests/kernels/test_prepare.py::test_bf16_ties_go_to_the_even_neighbour",
        "avx2",
        units=("csrc_avx/linear/prepare__avx2.cpp",),
    ),
]
