"""Faults of linear_bf16 by VDPBF16PS: order of products, chains, chunks, tiles. Planted where the processor has it."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import Fault
from tests.faults.linear import BITS, INPUTS

WORDS = "csrc_avx/linear/linear_bf16__avx512bf16.cpp"
words = partial(Fault, match="linear_bf16__avx512bf16", levels=("avx512bf16",))

FAULTS = [
    words(
        "words_of_a_quad_in_one_chain",
        WORDS,
        "odd[r][c] = _mm512_dpbf16_ps(odd[r][c], of_odd",
        "even[r][c] = _mm512_dpbf16_ps(even[r][c], of_odd",
        INPUTS,
    ),
    words(
        "even_chain_takes_odd_inputs",
        WORDS,
        "*even = _mm512_mask_blend_epi16(kHigh, second, _mm512_slli_epi32(first, 16));",
        "*even = _mm512_mask_blend_epi16(kHigh, _mm512_srli_epi32(second, 16), first);",
        INPUTS,
    ),
    words(
        "first_pair_row_in_the_place_of_the_second",
        WORDS,
        "second = _mm512_loadu_si512(pair_rows + 64);",
        "second = first, unused = _mm512_loadu_si512(pair_rows + 64);",
        INPUTS,
    ),
    words(
        "chains_added_to_the_sum_one_by_one",
        WORDS,
        "V::add(V::load(at), V::add(even[r][c], odd[r][c]))",
        "V::add(V::add(V::load(at), even[r][c]), odd[r][c])",
        INPUTS,
    ),
    words("last_record_dropped", WORDS, "inputs = round_up(a.k, 32)", "inputs = a.k / 32 * 32", INPUTS),
    words("chunk_weights_not_advanced", WORDS, "panel_bytes + from / 32 * kRecord;", "panel_bytes;", INPUTS),
    words("tile_takes_the_rows_of_the_first", WORDS, "k.x + first * k.stride", "k.x", BITS),
    words("sums_of_the_unit_before_kept", WORDS, "  std::memset(sums, 0,", "  if (a.k < 0) std::memset(sums, 0,", BITS),
]
