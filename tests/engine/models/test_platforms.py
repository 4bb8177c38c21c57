"""Every exact platform gives the reference's logits bit for bit, for every family, in mixed batches of chunks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.engine.models import drive
from tests.golden import tiny

from octavo.engine.models.decoder import Decoder
from octavo.platforms.platform import Platform
from octavo.platforms.registry import PLATFORMS, choose_platform

OTHERS = [entry.name for entry in PLATFORMS if entry.is_exact and entry.name != "reference" and not entry.probe()]


@pytest.mark.parametrize(
    "name", OTHERS or [pytest.param("none", marks=pytest.mark.skip("no other platform runs here"))]
)
@pytest.mark.parametrize("case", tiny.CASES)
def test_logits_are_the_references_bit_for_bit(
    name: str, case: str, reference: Platform, load: Callable[..., Decoder]
) -> None:
    other = choose_platform(name, 2).platform
    decoders = (load(reference, case), load(other, case))
    prompts = [tiny.prompt(case, length) for length in (33, 7)]
    for kv_dtype in ("f32", "bf16"):
        expected, found = (
            drive.run(platform, decoder, prompts, chunk=20, kv_dtype=kv_dtype, block_tokens=32)
            for platform, decoder in zip((reference, other), decoders, strict=True)
        )
        for length, (first, second) in zip((33, 7), zip(expected, found, strict=True), strict=True):
            assert first.tobytes() == second.tobytes(), f"{case} on {name}, {kv_dtype} keys, {length} tokens"
