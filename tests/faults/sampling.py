"""Faults of the sampler: ties, noise, masses, penalties, sums over the vocabulary."""

from __future__ import annotations

from tests.faults.fault import Fault

SAMPLE, NOISE, SELECT = (f"csrc_avx/sample/{name}.inl.h" for name in ("sample", "noise", "select"))
FILTERS = "tests/kernels/test_sample.py::test_every_filter_gives_the_references_bits"
GREEDY = "tests/kernels/test_sample.py::test_plain_greedy_rows_take_the_lowest_of_equal_tokens"

FAULTS = [
    Fault(
        "ties_take_the_highest_id",
        SAMPLE,
        "x[i] > x[best])",
        "x[i] >= x[best])",
        FILTERS,
        "avx2 and ties",
        is_quick=True,
    ),
    Fault(
        "greedy_ties_take_the_highest_id",
        SAMPLE,
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
        SAMPLE,
        "static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1p24",
        "static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1.8p23",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "min_p_excludes_its_bound", SAMPLE, "row.x[i] - top) >= p)", "row.x[i] - top) > p)", FILTERS, "avx2 and ties"
    ),
    Fault(
        "penalties_of_the_prompt_too",
        SAMPLE,
        "if (a.count_output[j] > 0) {",
        "if (a.count_output[j] >= 0) {",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "repetition_divides_negative_logits",
        SAMPLE,
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
    Fault("rank_counts_itself_twice", SAMPLE, "rank += key < own;", "rank += key <= own;", FILTERS, "avx2 and normal"),
]
