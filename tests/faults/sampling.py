"""Faults of the sampler: ties, noise, masses, penalties, candidates, sums over the vocabulary."""

from __future__ import annotations

from tests.faults.fault import Fault

VALUES, SELECT, LIST, NOISE, DRAW, WEIGH, FILTER, REPORT, ROW, HEAD = (
    f"csrc_common/sample/{name}.inl.h"
    for name in ("values", "select", "list", "noise", "draw", "weigh", "filters", "report", "row", "greedy_head")
)
TESTS = "tests/kernels/test_sample.py::"
FILTERS = TESTS + "test_every_filter_gives_the_references_bits"
GREEDY = TESTS + "test_plain_greedy_rows_take_the_lowest_of_equal_tokens"
DRAWS = TESTS + "test_draws_without_filters_take_the_references_token"
BEST = TESTS + "test_the_best_k_are_found_in_logits_of_any_order"
MISLED = TESTS + "test_top_p_holds_where_the_sample_of_the_logits_misleads"
BORDERS = TESTS + "test_lists_reach_the_first_and_last_ids_of_segments"
HEADS = "tests/kernels/test_greedy_head.py::"
HEAD_SIZES = HEADS + "test_ids_are_those_of_the_logits_at_every_size"
HEAD_TIES = HEADS + "test_the_lowest_of_equal_tokens_wins_wherever_they_lie"
HEAD_PLACES = HEADS + "test_a_row_that_ends_in_many_parts_is_the_row_alone"
HEAD_CAPS = HEADS + "test_softcap_makes_equals_of_which_the_lowest_wins"
HEAD_BIAS = HEADS + "test_the_bias_of_a_head_counts"
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
    Fault(
        "head_ties_take_the_last_part",
        HEAD,
        "if (value > best.value)",
        "if (value >= best.value)",
        HEAD_TIES,
        "avx2 and 2",
    ),
    Fault(
        "head_ties_take_the_later_panels",
        HEAD,
        "if (!(found > *value)) return;",
        "if (!(found >= *value)) return;",
        HEAD_TIES,
        is_quick=True,
    ),
    Fault("head_without_its_last_panel", HEAD, "(a.linear.n + 15) / 16", "a.linear.n / 16", HEAD_PLACES),
    Fault(
        "head_reads_beyond_its_last_token",
        HEAD,
        "n = smaller(16 * end, a.linear.n) - 16 * begin",
        "n = 16 * end - 16 * begin",
        HEAD_SIZES,
    ),
    Fault("head_starts_from_zero", HEAD, "values[r] = -kInf,", "values[r] = 0.0f,", HEAD_SIZES, is_quick=True),
    Fault("head_takes_uncapped_logits", HEAD, "if (a.softcap != 0.0f)", "if (a.softcap < 0.0f)", HEAD_CAPS),
    Fault("head_adds_the_first_panels_bias", HEAD, "some.bias += 16 * from;", "some.bias += 0;", HEAD_BIAS),
    Fault(
        "head_multiplies_the_first_panels", HEAD, "+ from * a.panel_bytes", "+ 0 * from * a.panel_bytes", HEAD_PLACES
    ),
]
