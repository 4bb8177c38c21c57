"""Faults of the sampler: ties, noise, masses, penalties, sums over the vocabulary."""

from __future__ import annotations

from tests.faults.fault import Fault

SAMPLE, ROW, FILTER, NOISE, SELECT = (
    f"csrc_avx/sample/{name}.inl.h" for name in ("sample", "row", "filter", "noise", "select")
)
FILTERS = "tests/kernels/test_sample.py::test_every_filter_gives_the_references_bits"
GREEDY = "tests/kernels/test_sample.py::test_plain_greedy_rows_take_the_lowest_of_equal_tokens"

FAULTS = [
    Fault(
        "ties_take_the_highest_id",
        ROW,
        "for (int64_t i = b * kBlock; i < (b + 1) * kBlock; ++i)\n      if (row.x[i] == top)",
        "for (int64_t i = (b + 1) * kBlock - 1; i >= b * kBlock; --i)\n      if (row.x[i] == top)",
        FILTERS,
        "avx2 and ties",
        is_quick=True,
    ),
    Fault(
        "greedy_ties_take_the_highest_id",
        ROW,
        "for (i = 0; i < n; ++i)\n    if (x[i] >= least) return static_cast<int32_t>(i);",
        "for (i = n - 1; i >= 0; --i)\n    if (x[i] >= least) return static_cast<int32_t>(i);",
        GREEDY,
    ),
    Fault("philox_of_nine_rounds", NOISE, "round < 10", "round < 9", FILTERS, "avx2 and normal", is_quick=True),
    Fault(
        "philox_words_in_another_order", NOISE, "words[token & 3]", "words[3 - (token & 3)]", FILTERS, "avx2 and normal"
    ),
    Fault(
        "noise_without_the_choice", NOISE, "uint32_t c2 = key.choice;", "uint32_t c2 = 0;", FILTERS, "avx2 and normal"
    ),
    Fault(
        "noise_of_the_low_position_only",
        NOISE,
        "(static_cast<uint64_t>(key.position) >> 32) & 0xFFFFFFu",
        "key.position & 0",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "top_p_one_token_too_many",
        SELECT,
        "before + sums[b] >= needed",
        "before + sums[b] > needed",
        FILTERS,
        "avx2 and ties",
        is_quick=True,
    ),
    Fault(
        "top_p_mass_of_a_wrong_share",
        FILTER,
        "static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1p24",
        "static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1.8p23",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "min_p_excludes_its_bound",
        FILTER,
        "V::select(V::lt(vec::exp<V>(V::sub(v, t)), least), none, v)",
        "V::select(V::gt(vec::exp<V>(V::sub(v, t)), least), v, none)",
        FILTERS,
        "avx2 and ties",
    ),
    Fault(
        "penalties_of_the_prompt_too",
        ROW,
        "if (a.count_output[j] > 0) {",
        "if (a.count_output[j] >= 0) {",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "repetition_divides_negative_logits",
        ROW,
        "v > 0.0f ? v / repetition : v * repetition",
        "v / repetition",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "vocabulary_summed_in_one_segment",
        SAMPLE,
        "kVocabSegment = 4096",
        "kVocabSegment = 8192",
        FILTERS,
        "avx2 and normal",
    ),
    Fault("rank_counts_itself_twice", SAMPLE, "&& i < token);", "&& i <= token);", FILTERS, "avx2 and normal"),
    Fault("draws_that_could_win_are_passed_over", NOISE, "(1e-4f - g)", "(-1.0f - g)", FILTERS, "avx2 and normal"),
    Fault(
        "draws_of_a_vector_have_another_key",
        NOISE,
        "turn * 0xBB67AE85u",
        "turn * 0xBB67AE87u",
        FILTERS,
        "avx2 and normal",
        is_quick=True,
    ),
    Fault(
        "top_k_looks_at_one_block_too_few",
        FILTER,
        "blocks, static_cast<uint64_t>(k), row.spare))];",
        "blocks, static_cast<uint64_t>(k > 1 ? k - 1 : 1), row.spare))];",
        FILTERS,
        "avx2 and normal",
    ),
    Fault("top_p_forgets_small_masses", FILTER, "kNoMass = 28.0f", "kNoMass = 3.0f", FILTERS, "avx2 and normal"),
    Fault(
        "top_p_masses_in_coarse_units",
        FILTER,
        "V::cvt_i32(first));\n      low = V::iadd(low,",
        "V::cvt_i32(first));\n      low = V::isub(low,",
        FILTERS,
        "avx2 and ties",
    ),
]
