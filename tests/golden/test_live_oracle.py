"""Octavo against transformers, live: every logit of every tiny checkpoint, on every platform that runs here.

The oracle's logits lie in build/oracle-logits, hidden states of encoders in build/oracle-hidden, freshly written by
`ci/test-oracle`; without them, or when the checkpoints have changed since, there is nothing to compare with. The plain
tests compare stored samples of the same values.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.engine.models import drive, encoder_drive
from tests.golden import make_encoder_golden, make_model_golden, tiny, tiny_encoders

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.load import load_model
from octavo.platforms.registry import PLATFORMS, choose_platform

BOUND = 1e-4
#: of the largest hidden state, or of 1 where all are smaller: torch's float32 sums differ from chip to chip
ENCODER_BOUND = 1e-5
FOLDER = Path(__file__).parents[2] / "build" / "oracle-logits"
HIDDEN_FOLDER = FOLDER.with_name("oracle-hidden")
NAMES = [entry.name for entry in PLATFORMS if not entry.probe()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", tiny.CASES)
def test_all_logits_match_the_oracle(case: str, name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{case}.npz"
    if not path.is_file():
        pytest.skip("ci/test-oracle writes the oracle's logits")
    folder = tiny.write_safetensors(case, tmp_path / case)
    config = json.loads((folder / "config.json").read_text())
    platform = choose_platform(name, 2).platform
    with np.load(path) as oracle:
        if oracle["source"].tobytes() != make_model_golden.source_digest():
            pytest.skip("the oracle's logits are of other checkpoints; run ci/test-oracle again")
        for length in make_model_golden.DUMP_LENGTHS:
            limit = 64 if length <= 64 else tiny.MAX_POSITIONS
            with Checkpoint.open(folder) as checkpoint:
                decoder = load_model(checkpoint, platform.weights(), config=config, max_len=limit)
            (found,) = drive.run(platform, decoder, [tiny.prompt(case, length)], chunk=64)
            worst = float(np.abs(found - oracle[f"logits_{length}"]).max())
            assert worst <= BOUND, f"{case} on {name}, {length} tokens: {worst:.2e} from the oracle"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", tiny_encoders.ALL)
def test_all_hidden_states_match_the_oracle(case: str, name: str, tmp_path: Path) -> None:
    path = HIDDEN_FOLDER / f"{case}.npz"
    if not path.is_file():
        pytest.skip("ci/test-oracle writes the oracle's hidden states")
    platform = choose_platform(name, 2).platform
    encoder = encoder_drive.load(platform, tiny_encoders.write_safetensors(case, tmp_path / case))
    with np.load(path) as oracle:
        if oracle["source"].tobytes() != make_encoder_golden.source_digest():
            pytest.skip("the oracle's hidden states are of other checkpoints; run ci/test-oracle again")
        lengths = make_encoder_golden.DUMP_LENGTHS
        found = encoder_drive.run(platform, encoder, *encoder_drive.texts_of(case, lengths))
        for length, rows in zip(lengths, found, strict=True):
            wanted = oracle[f"hidden_{length}"]
            worst = float(np.abs(rows - wanted).max()) / max(1.0, float(np.abs(wanted).max()))
            assert worst <= ENCODER_BOUND, f"{case} on {name}, {length} tokens: {worst:.2e} from the oracle"
