"""Every family against transformers: golden logits of tiny checkpoints, whole prompts and chunks, alone and together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.engine.models import drive
from tests.golden import tiny

from octavo.engine.models.decoder import Decoder
from octavo.platforms.platform import Platform

BOUND = 1e-4  # float32 logits against the oracle's
GOLDEN = Path(tiny.__file__).parent / "models"


def limits(case: str, length: int) -> int:
    """The length limit to serve with: longrope's oracle chooses its factors by the prompt's own length."""
    return 64 if case == "phi3" and length <= 64 else tiny.MAX_POSITIONS


@pytest.mark.parametrize("case", tiny.CASES)
def test_logits_match_the_oracle(case: str, reference: Platform, load: Callable[..., Decoder]) -> None:
    with np.load(GOLDEN / f"{case}.npz") as golden:
        for limit in sorted({limits(case, length) for length in tiny.LENGTHS}):
            lengths = [length for length in tiny.LENGTHS if limits(case, length) == limit]
            decoder = load(reference, case, max_len=limit)
            found = drive.run(reference, decoder, [tiny.prompt(case, length) for length in lengths])
            for length, logits in zip(lengths, found, strict=True):
                assert logits.shape == (length, tiny.VOCAB)
                short = logits[tiny.golden_rows(length), tiny.GOLDEN_COLUMNS]
                worst = float(np.abs(short - golden[f"logits_{length}"]).max())
                assert worst <= BOUND, f"{case}, {length} tokens: {worst:.2e} from the oracle"


@pytest.mark.parametrize("case", tiny.CASES)
def test_chunks_give_the_same_bits(case: str, reference: Platform, load: Callable[..., Decoder]) -> None:
    decoder = load(reference, case)
    prompt = tiny.prompt(case, 33)
    (whole,) = drive.run(reference, decoder, [prompt])
    for chunk in (1, 7):
        (cut,) = drive.run(reference, decoder, [prompt], chunk=chunk)
        assert cut.tobytes() == whole.tobytes(), f"chunks of {chunk} changed bits"


def test_neighbours_do_not_change_bits(reference: Platform, load: Callable[..., Decoder]) -> None:
    decoder = load(reference, "gemma3")
    prompts = [tiny.prompt("gemma3", length) for length in (33, 2, 20)]
    together = drive.run(reference, decoder, prompts, chunk=8)
    for prompt, logits in zip(prompts, together, strict=True):
        (alone,) = drive.run(reference, decoder, [prompt])
        assert alone.tobytes() == logits.tobytes()
