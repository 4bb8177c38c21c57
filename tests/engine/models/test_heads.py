"""Heads of every family against transformers, on every exact platform, packed in any company; labels are config.json's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.golden import make_head_golden, tiny_encoders, tiny_heads

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.encoder_load import load_encoder
from octavo.engine.models.head_kinds import KINDS, kind_of
from octavo.engine.models.heads import classification
from octavo.engine.models.reader import Description
from octavo.engine.pooling.head_runner import ROWS, HeadRunner
from octavo.platforms.platform import Platform
from octavo.platforms.registry import PLATFORMS, choose_platform
from octavo.platforms.types import F32

BOUND = 1e-5
#: scores of a vocabulary are products with a table of spread 0.5, so they are held to 1e-5 of the largest
RELATIVE = 1e-5
OTHERS = [entry.name for entry in PLATFORMS if entry.is_exact and entry.name != "reference" and not entry.probe()]
Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Case -> its folder, written once."""
    root = tmp_path_factory.mktemp("heads")

    def folder(case: str) -> Path:
        path = root / case
        return path if path.is_dir() else tiny_heads.write_safetensors(case, path)

    return folder


def runner(platform: Platform, folder: Path) -> HeadRunner:
    config = json.loads((folder / "config.json").read_text())
    with Checkpoint.open(folder) as checkpoint:
        encoder = load_encoder(checkpoint, platform.weights(), config=config, with_head=True)
    assert encoder.head is not None and encoder.head.spec.kind == kind_of(config["architectures"][0])
    pooling = encoder.head.spec.pooling if encoder.head.spec.kind == "sequence" else ""
    return HeadRunner(platform, encoder, encoder.head, pooling=pooling, max_tokens=256, max_seqs=8)


def scores(platform: Platform, folder: Path, case: str, lengths: tuple[int, ...]) -> list[F32]:
    """Of every text, all packed into one step: [labels], or [tokens, width]."""
    base = tiny_heads.CASES[case][0]
    texts = [[int(i) for i in tiny_encoders.prompt(base, n)] for n in lengths]
    types = [[int(i) for i in tiny_encoders.token_types(base, n)] for n in lengths]
    found = runner(platform, folder)
    try:
        if "Sequence" in tiny_heads.config(case)["architectures"][0]:
            return list(found.of_sequences(texts, types))
        parts: list[list[F32]] = [[] for _ in lengths]
        for place, rows in found.of_tokens(texts, types):
            parts[place].append(np.array(rows))
        return [np.concatenate(some) for some in parts]
    finally:
        found.close()


@pytest.mark.parametrize("case", tiny_heads.CASES)
def test_scores_match_the_oracle(case: str, reference: Platform, checkpoints: Folders) -> None:
    found = scores(reference, checkpoints(case), case, tiny_heads.LENGTHS)
    with np.load(make_head_golden.FILE) as golden:
        for length, rows in zip(tiny_heads.LENGTHS, found, strict=True):
            wanted = golden[f"{case}_{length}"]
            some = rows if rows.ndim == 1 else rows[tiny_encoders.golden_rows(length)]
            assert some.shape == wanted.shape
            bound = max(BOUND, RELATIVE * float(np.abs(wanted).max()))
            worst = float(np.abs(some - wanted).max())
            assert worst <= bound, f"{case}, {length} tokens: {worst:.2e} from the oracle"


@pytest.mark.parametrize(
    "name", OTHERS or [pytest.param("none", marks=pytest.mark.skip("no other platform runs here"))]
)
@pytest.mark.parametrize("case", tiny_heads.CASES)
def test_scores_are_the_references_bit_for_bit_in_any_company(
    name: str, case: str, reference: Platform, checkpoints: Folders
) -> None:
    expected = scores(reference, checkpoints(case), case, (33, 1, 7))
    other = choose_platform(name, 2).platform
    together = scores(other, checkpoints(case), case, (7, 33, 1))
    for place, rows in zip((1, 2, 0), expected, strict=True):
        assert together[place].tobytes() == rows.tobytes(), f"{case} on {name}"


def test_tokens_come_some_at_a_time(reference: Platform, checkpoints: Folders) -> None:
    found = runner(reference, checkpoints("bert_token"))
    texts = [[5] * (2 * ROWS + 2), [7] * 3]
    assert [(place, len(rows)) for place, rows in found.of_tokens(texts)] == [(0, ROWS), (0, ROWS), (0, 2), (1, 3)]


def test_every_head_that_is_served_has_a_golden_case() -> None:
    from octavo.engine.models import registry

    served = [name for name in registry.ENCODERS if registry.encoder_family(name, "x").head is not None]
    wanted = {name for name in served if kind_of(name) not in (None, "vectors")}  # tests of an embedder have those
    assert wanted == {tiny_heads.config(case)["architectures"][0] for case in tiny_heads.CASES}
    assert {kind_of(name) for name in wanted} == set(KINDS.values())


def test_labels_are_those_of_the_description() -> None:
    def labels(**config: Any) -> tuple[str, ...]:
        return classification(Description(config, "x"), "sequence").labels

    assert labels() == ("LABEL_0", "LABEL_1") and labels(num_labels=1) == ("LABEL_0",)
    assert labels(id2label={"1": "b", "0": "a"}) == ("a", "b")
    for bad in ({"0": "a", "2": "b"}, {}, ["a"], {"x": "a"}):
        with pytest.raises(ModelError, match="id2label"):
            labels(id2label=bad)
    with pytest.raises(ModelError, match="num_labels is 0; it must be 1 to"):
        labels(num_labels=0)


def test_a_head_that_is_missing_or_of_another_size_is_named(reference: Platform, tmp_path: Path) -> None:
    folder = tiny_heads.write_safetensors("bert_sequence", tmp_path)
    tensors = tiny_heads.state_dict("bert_sequence")
    short = {**tensors, "classifier.weight": tensors["classifier.weight"][:2]}
    without = {name: values for name, values in tensors.items() if "pooler" not in name}
    for some, text in (
        (short, r"classifier\.weight has shape \[2, 64\]; .* asks for \[3, 64\]"),
        (without, r"'bert\.pooler\.dense\.\w+' is not in"),
        ({**tensors, "classifier.more": tensors["classifier.bias"]}, r"does not use: classifier\.more"),
    ):
        save_file(some, folder / "model.safetensors")
        with pytest.raises(ModelError, match=text):
            runner(reference, folder)


def test_an_encoder_alone_has_no_head(reference: Platform, tmp_path: Path) -> None:
    folder = tiny_encoders.write_safetensors("bert", tmp_path)
    with pytest.raises(ModelError, match=r"BertModel has no head: .* octavo\.Embedder .* ForSequenceClassification"):
        runner(reference, folder)
