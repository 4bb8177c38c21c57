"""A batch that asks for what is not served is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cases.common import batch_of

from octavo.engine.errors import PlatformError
from octavo.platforms.batch import check_batch, check_size
from octavo.platforms.platform import Capacity


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("embeds", np.zeros((5, 4), np.float32), "embedding rows"),
        ("adapter_slots", np.zeros(2, np.int32), "LoRA"),
        ("attention_modes", ("causal", "tree"), "tree"),
        ("state_slots", np.zeros(2, np.int32), "recurrent"),
        ("positions", np.zeros((3, 5), np.int32), "mrope"),
        ("taps", ("layer 3",), "layer 3"),
    ],
)
def test_what_is_not_served_is_refused(field: str, value: Any, words: str) -> None:
    batch = batch_of([(0, 3), (0, 2)])
    with pytest.raises(PlatformError, match=words):
        check_batch(replace(batch, **{field: value}))


def test_absent_and_neutral_values_pass() -> None:
    batch = batch_of([(0, 3)])
    check_batch(replace(batch, adapter_slots=np.full(1, -1, np.int32), attention_modes=("causal",)))


@pytest.mark.parametrize(("tokens", "seqs", "words"), [(4, 2, "5 tokens"), (5, 1, "2 sequences")])
def test_a_step_beyond_the_capacity_is_refused(tokens: int, seqs: int, words: str) -> None:
    batch = batch_of([(0, 3), (0, 2)])
    check_size(batch, Capacity(5, 2, 1, 64, 4))
    with pytest.raises(PlatformError, match=words):
        check_size(batch, Capacity(tokens, seqs, 1, 64, 4))
