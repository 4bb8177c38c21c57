"""Faults of the token ops: embedding, norms, rope, pool, softcap, add."""

from __future__ import annotations

from tests.faults.fault import Fault

EMBEDDING, SUMS, AVX2 = "csrc_common/ref/embedding.inl.h", "csrc_common/vec/sum16.inl.h", "csrc_common/vec/avx2.h"
MATH = "csrc_common/vec/math.inl.h"
NORM, ROPE, POOL, SOFTCAP = (
    f"csrc_common/{name}.inl.h" for name in ("norm/norm", "rope/rope", "pool/pool", "token/softcap")
)
ROWS = "tests/kernels/test_embedding.py::test_rows_have_the_bits_of_unpack"
RMS = "tests/kernels/test_norm.py::test_rms_norm_has_the_reference_bits_at_any_width"
LAYER = "tests/kernels/test_norm.py::test_layer_norm_has_the_reference_bits_with_any_of_its_parts_missing"
ROTATION = "tests/kernels/test_rope.py::test_rotation_has_the_reference_bits"
CAPPED = "tests/kernels/test_softcap.py::test_softcap_has_the_reference_bits"

FAULTS = [
    Fault(
        "embedding_minimum_dropped",
        EMBEDDING,
        "Gguf::kMin ? v + m : v",
        "Gguf::kMin ? v : v",
        ROWS,
        "embedding_q4_1__avx2",
    ),
    Fault(
        "embedding_sub_minimum_added",
        EMBEDDING,
        "Gguf::kMin ? v - low : v",
        "Gguf::kMin ? v + low : v",
        ROWS,
        "embedding_q4_k__avx2",
    ),
    Fault(
        "embedding_scale_left_out", EMBEDDING, "y[i] = y[i] * a.scale;", "y[i] = y[i];", ROWS, "embedding_bf16__avx2"
    ),
    Fault(
        "embedding_neighbour_row_read",
        EMBEDDING,
        "ids[t] * a.row_bytes",
        "(ids[t] - (ids[t] > 0)) * a.row_bytes",
        ROWS,
        "embedding_f16__avx2",
    ),
    Fault(
        "embedding_of_the_token_before",
        EMBEDDING,
        "ids[t] * a.row_bytes",
        "ids[t - (t > 0)] * a.row_bytes",
        ROWS,
        "embedding_f32__avx2",
    ),
    Fault(
        "norm_sums_in_eight_lanes",
        SUMS,
        "lanes.part[p] = step(lanes.part[p], V::load(x + i + p * V::kLanes))",
        "lanes.part[0] = step(lanes.part[0], V::load(x + i + p * V::kLanes))",
        RMS,
        is_quick=True,
        units=("csrc_avx/norm/norm__avx2.cpp",),
    ),
    Fault(
        "norm_lanes_folded_pairwise",
        AVX2,
        "q = _mm_add_ps(q, _mm_movehl_ps(q, q));\n    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));",
        "q = _mm_add_ps(q, _mm_shuffle_ps(q, q, 0xB1));\n    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehl_ps(q, q)));",
        RMS,
        units=("csrc_avx/norm/norm__avx2.cpp",),
    ),
    Fault(
        "norm_squares_not_fused",
        SUMS,
        "V::fma(v, v, lane)",
        "V::add(V::mul(v, v), lane)",
        RMS,
        units=("csrc_avx/norm/norm__avx2.cpp",),
    ),
    Fault(
        "rms_norm_eps_outside_the_root",
        NORM,
        "__builtin_sqrtf(s / static_cast<float>(a.width) + a.eps)",
        "(__builtin_sqrtf(s / static_cast<float>(a.width)) + a.eps)",
        RMS,
    ),
    Fault(
        "rms_norm_weight_before_the_inverse",
        NORM,
        "V::mul(V::mul(load(x + i, n), r), load(a.weight + i, n))",
        "V::mul(load(x + i, n), V::mul(r, load(a.weight + i, n)))",
        RMS,
    ),
    Fault(
        "layer_norm_bias_not_fused",
        NORM,
        "v = V::fma(v, load(a.weight + i, n), load(a.bias + i, n));",
        "v = V::add(V::mul(v, load(a.weight + i, n)), load(a.bias + i, n));",
        LAYER,
    ),
    Fault(
        "heads_normed_with_the_first_head",
        NORM,
        "u % a.heads * a.width",
        "0 * (u % a.heads) * a.width",
        "tests/kernels/test_norm.py::test_heads_are_normed_apart",
    ),
    Fault(
        "rope_pairs_rotated_as_halves",
        ROPE,
        "x1 = x[2 * i], x2 = x[2 * i + 1]",
        "x1 = x[i], x2 = x[half + i]",
        ROTATION,
        "avx2 and pairs",
        is_quick=True,
    ),
    Fault(
        "rope_turned_the_other_way",
        ROPE,
        "V::fma(x1, cos, V::neg(V::mul(x2, sin)))",
        "V::fma(x1, cos, V::mul(x2, sin))",
        ROTATION,
        "avx2 and halves",
    ),
    Fault(
        "rope_not_fused",
        ROPE,
        "V::fma(x2, cos, V::mul(x1, sin))",
        "V::add(V::mul(x2, cos), V::mul(x1, sin))",
        ROTATION,
        "avx2 and halves",
    ),
    Fault(
        "rope_by_row_not_position",
        ROPE,
        "step.positions[t] * a.rotary_dim",
        "t * a.rotary_dim",
        "tests/kernels/test_rope.py::test_the_row_position_decides_not_the_row",
    ),
    Fault(
        "pool_last_is_the_row_before",
        POOL,
        "first + rows - 1",
        "first + rows - 1 - (rows > 1)",
        "tests/kernels/test_pool.py::test_pool_has_the_reference_bits",
        "avx2 and last",
    ),
    Fault(
        "pool_mean_adds_backwards",
        POOL,
        "W::load(x + r * a.ldx + i)",
        "W::load(x + (rows - 1 - r) * a.ldx + i)",
        "tests/kernels/test_pool.py::test_the_mean_adds_in_token_order",
    ),
    Fault(
        "softcap_by_reciprocal",
        SOFTCAP,
        "vec::tanh<V>(V::div(V::load(x + i), cap))",
        "vec::tanh<V>(V::mul(V::load(x + i), V::div(V::broadcast(1.0f), cap)))",
        CAPPED,
    ),
    Fault(
        "tanh_split_moved",
        MATH,
        "V::lt(a, V::broadcast(0.625f))",
        "V::lt(a, V::broadcast(0.5f))",
        CAPPED,
        units=("csrc_avx/token/softcap__avx2.cpp",),
    ),
    Fault(
        "exp_reduction_in_one_step",
        MATH,
        "r = V::fma(n, V::broadcast(-0x1.7f7d1cp-20f), r);",
        "",
        CAPPED,
        units=("csrc_avx/token/softcap__avx2.cpp",),
    ),
    Fault(
        "contraction_in_add",
        "",
        "",
        "",
        "tests/kernels/test_add.py::test_sum_has_the_reference_bits",
        "avx2",
        units=("csrc_avx/token/add__avx2.cpp",),
        flags=("-O3", "-ffp-contract=fast"),
    ),
    Fault(
        "contraction_in_attention",
        "",
        "",
        "",
        "tests/kernels/test_paged_attention.py::test_softcap_sinks_and_alibi",
        "f32__avx2 and alibi",
        units=("csrc_avx/attention/paged_attention__avx2.cpp",),
        flags=("-O3", "-ffp-contract=fast"),
        is_quick=True,
    ),
]
