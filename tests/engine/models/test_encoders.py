"""Every family of encoders against transformers, on every exact platform, packed in any company."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.engine.models import encoder_drive
from tests.golden import tiny_encoders as tiny

from octavo.engine.models import registry
from octavo.engine.models.head_kinds import kind_of
from octavo.platforms.platform import Platform
from octavo.platforms.registry import PLATFORMS, choose_platform

BOUND = 1e-5
GOLDEN = Path(tiny.__file__).parent / "encoders"
OTHERS = [entry.name for entry in PLATFORMS if entry.is_exact and entry.name != "reference" and not entry.probe()]
Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Case -> its folder, written once."""
    root = tmp_path_factory.mktemp("encoders")

    def folder(case: str) -> Path:
        path = root / case
        return path if path.is_dir() else tiny.write_safetensors(case, path)

    return folder


@pytest.mark.parametrize("case", tiny.ALL)
def test_hidden_states_match_the_oracle(case: str, reference: Platform, encoders: Folders) -> None:
    encoder = encoder_drive.load(reference, encoders(case))
    found = encoder_drive.run(reference, encoder, *encoder_drive.texts_of(case, tiny.LENGTHS))
    with np.load(GOLDEN / f"{case}.npz") as golden:
        for length, rows in zip(tiny.LENGTHS, found, strict=True):
            assert rows.shape == (length, encoder.spec.hidden)
            worst = float(np.abs(rows[tiny.golden_rows(length)] - golden[f"hidden_{length}"]).max())
            assert worst <= BOUND, f"{case}, {length} tokens: {worst:.2e} from the oracle"


@pytest.mark.parametrize(
    "name", OTHERS or [pytest.param("none", marks=pytest.mark.skip("no other platform runs here"))]
)
@pytest.mark.parametrize("case", tiny.ALL)
def test_hidden_states_are_the_references_bit_for_bit(
    name: str, case: str, reference: Platform, encoders: Folders
) -> None:
    other = choose_platform(name, 2).platform
    texts, types = encoder_drive.texts_of(case, (33, 1, 7))
    expected, found = (
        encoder_drive.run(platform, encoder_drive.load(platform, encoders(case)), texts, types)
        for platform in (reference, other)
    )
    for length, first, second in zip((33, 1, 7), expected, found, strict=True):
        assert first.tobytes() == second.tobytes(), f"{case} on {name}, {length} tokens"


@pytest.mark.parametrize("case", tiny.ALL)
def test_company_and_order_change_no_bit(case: str, reference: Platform, encoders: Folders) -> None:
    encoder = encoder_drive.load(reference, encoders(case))
    texts, types = encoder_drive.texts_of(case, (7, 1, 33, 8))
    together = encoder_drive.run(reference, encoder, texts, types)
    backwards = encoder_drive.run(reference, encoder, texts[::-1], types[::-1])[::-1]
    for text, kinds, first, second in zip(texts, types, together, backwards, strict=True):
        (alone,) = encoder_drive.run(reference, encoder, [text], [kinds])
        assert alone.tobytes() == first.tobytes() == second.tobytes()


def test_every_row_of_the_registry_has_a_golden_case() -> None:
    plain = {name for name in registry.ENCODERS if kind_of(name) in (None, "masked")}  # tests of heads have the others
    assert {config["architectures"][0] for config in tiny.CASES.values()} == plain
    for name in registry.ENCODERS:
        assert {"tokens", "o", "down"} <= set(registry.encoder_family(name, "folder").hf.roles)


@pytest.mark.parametrize("form", ["bf16", "w8a8", "q8_0"])
def test_quantized_layers_stay_close(form: str, reference: Platform, encoders: Folders) -> None:
    texts, types = encoder_drive.texts_of("bert", (33, 7))
    exact = encoder_drive.run(reference, encoder_drive.load(reference, encoders("bert")), texts, types)
    encoder = encoder_drive.load(reference, encoders("bert"), quantize=form)
    assert encoder.formats() == [form] and encoder.grown_bytes < 0
    for plain, rounded in zip(exact, encoder_drive.run(reference, encoder, texts, types), strict=True):
        cosine = (plain * rounded).sum(1) / np.linalg.norm(plain, axis=1) / np.linalg.norm(rounded, axis=1)
        assert 0.998 <= cosine.min() < 1.0
