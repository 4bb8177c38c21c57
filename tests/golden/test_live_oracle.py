"""Octavo against transformers, live: every logit of every tiny checkpoint, on every platform that runs here.

Skipped where torch is not installed: `ci/test-oracle` is where it runs. The plain tests compare stored samples of the
same values.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.engine.models import drive
from tests.golden import make_model_golden, tiny

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.load import load_model
from octavo.platforms.registry import PLATFORMS, choose_platform

pytest.importorskip("torch", reason="the oracle runs in ci/test-oracle")

BOUND = 1e-4
NAMES = [entry.name for entry in PLATFORMS if not entry.probe()]
LENGTHS = (7, 200)


@pytest.mark.filterwarnings("ignore")  # the oracle's own
@pytest.mark.parametrize("case", tiny.CASES)
def test_all_logits_match_the_oracle(case: str, tmp_path: Path) -> None:
    folder = tiny.write_safetensors(case, tmp_path / case)
    expected = make_model_golden.oracle_logits(case, LENGTHS)
    config = json.loads((folder / "config.json").read_text())
    for name in NAMES:
        platform = choose_platform(name, 2).platform
        for length in LENGTHS:
            limit = 64 if length <= 64 else tiny.MAX_POSITIONS
            with Checkpoint.open(folder) as checkpoint:
                decoder = load_model(checkpoint, platform.weights(), config=config, max_len=limit)
            (found,) = drive.run(platform, decoder, [tiny.prompt(case, length)], chunk=64)
            worst = float(np.abs(found - expected[length]).max())
            assert worst <= BOUND, f"{case} on {name}, {length} tokens: {worst:.2e} from the oracle"
