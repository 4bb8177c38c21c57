"""A plan never exceeds the room it was given, is never larger than of use, and refuses with numbers."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine.errors import ConfigError
from octavo.engine.memory import HEADROOM_SHARE, MIN_PAGES, MemoryPlan, plan_memory
from octavo.platforms.types import GroupKind, KVGroup, KVSpec

PAGE = 64 << 10
GIB = 1 << 30


def plan(num_groups: int = 1, **changes: Any) -> MemoryPlan:
    groups = tuple(KVGroup(GroupKind.FULL, (i,)) for i in range(num_groups))
    settings = {
        "usable_bytes": 8 * GIB, "free_bytes": 6 * GIB, "weights_bytes": GIB, "scratch_bytes": GIB, "kv_bytes": None,
        "max_model_len": 100_000, "max_num_seqs": 64,
    }  # fmt: skip
    return plan_memory(KVSpec(groups, 2, 64, "bf16", 32), PAGE, **{**settings, **changes})


def test_the_pool_fits_beside_scratch_and_headroom() -> None:
    made = plan()
    room = 6 * GIB - GIB - int(8 * GIB * HEADROOM_SHARE)
    assert room // 2 < made.kv_bytes <= room and made.kv_bytes == made.num_pages * PAGE
    assert "KV pool" in made.line() and str(made.num_pages) in made.line()


@pytest.mark.parametrize(("num_groups", "pages"), [(1, 2 * 4 + 1), (3, 2 * 4 * 3 + 1)])
def test_no_more_pages_than_all_sequences_can_fill(num_groups: int, pages: int) -> None:
    assert plan(num_groups, max_model_len=100, max_num_seqs=2).num_pages == pages


def test_one_short_sequence_is_not_refused_for_needing_little() -> None:
    assert plan(max_model_len=32, max_num_seqs=1).num_pages == MIN_PAGES


def test_a_size_that_was_asked_for_is_given_to_the_page() -> None:
    assert plan(kv_bytes=100 * PAGE + 5).num_pages == 100


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kv_bytes": 5 * GIB}, r"a KV pool of 5 GiB was asked for \(--kv-gib, kv_bytes\), and 4\.2 GiB fit"),
        ({"kv_bytes": MIN_PAGES * PAGE - 1}, rf"give 0\.0003 GiB \({MIN_PAGES * PAGE} bytes\) or more"),
        ({"free_bytes": GIB}, "no room for a KV pool: 0 GiB"),
        ({"scratch_bytes": 6 * GIB}, "no room for a KV pool"),
        ({"kv_bytes": GIB, "free_bytes": GIB}, "and 0 GiB fit"),
    ],
)
def test_what_does_not_fit_is_refused_with_numbers(changes: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan(**changes)
