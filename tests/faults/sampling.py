"""Faults of the sampler: ties, noise, masses, penalties, candidates, sums over the vocabulary."""

from __future__ import annotations

from tests.faults.fault import Fault

VALUES, SELECT, LIST, NOISE, DRAW, WEIGH, FILTER, REPORT, ROW = (
    f"csrc_avx/sample/{name}.inl.h"
    for name in ("values", "select", "list", "noise", "draw", "weigh", "filters", "report", "row")
)
TESTS = "tests/kernels/test_sample.py::"
FILTERS = TESTS + "test_every_filter_gives_the_references_bits"
GREEDY = TESTS + "test_plain_greedy_rows_take_the_lowest_of_equal_tokens"
DRAWS = TESTS + "test_draws_without_filters_take_the_references_token"
BEST = TESTS + "test_the_best_k_are_found_in_logits_of_any_order"
MISLED = TESTS + "test_top_p_holds_where_the_sample_of_the_logits_misleads"
BORDERS = TESTS + "test_lists_reach_the_first_and_last_ids_of_segments"
THREADS = TESTS + "test_a_row_does_not_depend_on_its_neighbours_or_on_threads"

FAULTS = [
    Fault(
        "ties_take_the_highest_id",
        VALUES,
        "start + i + __builtin_ctz(equal)",
        "start + i + 31 - __builtin_clz(equal)",
        FILTERS,
        "avx2 and ties",
        is_quick=True,
    ),
    Fault(
        "greedy_ties_take_the_highest_segment",
        VALUES,
        "if (!(value > best.value)) return;",
        "",
        FILTERS,
        "avx2 and ties",
    ),
    Fault(
        "ties_of_parts_take_the_last_part",
        ROW,
        "if (found.value > best.value) best = found;",
        "if (found.value >= best.value) best = found;",
        THREADS,
        "avx2",
    ),
    Fault(
        "greedy_takes_what_is_no_number",
        VALUES,
        "return W::min(W::max(v, W::broadcast(-kInf)),",
        "return W::min(W::max(W::broadcast(-kInf), v),",
        FILTERS,
        "avx2 and odd",
    ),
    Fault(
        "last_lanes_read_as_zero", VALUES, "V::bits_mask((1u << n) - 1u)", "V::bits_mask(~0u)", DRAWS, "avx2 and normal"
    ),
    Fault("philox_of_nine_rounds", NOISE, "round < 10", "round < 9", FILTERS, "avx2 and normal", is_quick=True),
    Fault(
        "philox_words_in_another_order",
        NOISE,
        "words[1] = W::join(even.c1, odd.c1);",
        "words[1] = W::join(even.c3, odd.c3);",
        FILTERS,
        "avx2 and normal",
    ),
    Fault("noise_without_the_choice", NOISE, "c2(W::same(key.choice)),", "c2(W::same(0)),", FILTERS, "avx2 and normal"),
    Fault(
        "noise_of_the_low_position_only",
        NOISE,
        "(static_cast<uint64_t>(key.position) >> 32) & 0xFFFFFFu",
        "key.position & 0",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "draws_of_the_neighbour_block",
        DRAW,
        "i % 4 * (kLanes / 4) + i / 4",
        "i",
        DRAWS,
        "avx2 and normal",
        is_quick=True,
    ),
    Fault("likely_draws_passed_over", DRAW, "kSlack = 0.01f", "kSlack = -1.0f", DRAWS, "avx2"),
    Fault("noise_believed_small", NOISE, "kMaxGumbel = 23.0f", "kMaxGumbel = 3.0f", DRAWS, "avx2"),
    Fault("best_k_bound_too_high", LIST, "2 * k + kPiece / 2", "k / 2", BEST, "avx2"),
    Fault(
        "top_p_one_token_too_many",
        SELECT,
        "return {low, needed};",
        "return {low, needed + 1};",
        FILTERS,
        "avx2 and ties",
        is_quick=True,
    ),
    Fault("equal_tokens_all_stay", LIST, "if (rest == 0) return false;", "", FILTERS, "avx2 and ties"),
    Fault(
        "top_p_mass_of_a_wrong_share",
        WEIGH,
        "static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1p24",
        "static_cast<double>(p > 0.0f ? p : 0.0f) * 0x1.8p23",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "masses_of_twenty_bits",
        WEIGH,
        "low = V::iadd(low, V::cut_i32(rest));",
        "low = V::iadd(low, V::cut_i32(V::sub(rest, rest)));",
        MISLED,
        "avx2",
    ),
    Fault(
        "top_p_trusts_its_guess",
        ROW,
        "if (weigh_list(*list, above) >= needed &&",
        "if (weigh_list(*list, above) >= 0 &&",
        MISLED,
        "avx2",
    ),
    Fault("min_p_excludes_its_bound", FILTER, "list->e[i] >= p", "list->e[i] > p", FILTERS, "avx2 and ties"),
    Fault(
        "penalties_of_the_prompt_too",
        VALUES,
        "if (a.count_output[j] > 0) {",
        "if (a.count_output[j] >= 0) {",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "repetition_divides_negative_logits",
        VALUES,
        "v > 0.0f ? v / repetition : v * repetition",
        "v / repetition",
        FILTERS,
        "avx2 and normal",
    ),
    Fault(
        "lists_of_the_segment_s_first_id_missed",
        VALUES,
        "if (ids[middle] < start)",
        "if (ids[middle] <= start)",
        BORDERS,
        "avx2",
    ),
    Fault(
        "vocabulary_summed_in_one_segment",
        VALUES,
        "kVocabSegment = 4096",
        "kVocabSegment = 8192",
        FILTERS,
        "avx2 and normal",
    ),
    Fault("rank_counts_itself_twice", REPORT, "id < own)", "id <= own)", FILTERS, "avx2 and normal"),
    Fault(
        "rank_without_lower_ids_of_equals",
        REPORT,
        "if (start + i < token) {",
        "if (start + i < 0) {",
        FILTERS,
        "avx2 and ties",
    ),
]
