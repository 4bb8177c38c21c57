"""Cells of embedding engines ask what they say and are worth what was answered; peers' answers are timed call by call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import embed
from benchmarks.cells import Prompts
from benchmarks.common import Samples
from benchmarks.embed import EmbedCell, Texts, parse_cell
from benchmarks.grid import Found
from benchmarks.peers import embedding
from benchmarks.processes import PEERS


def cell(name: str) -> EmbedCell:
    return parse_cell(name, Texts())


@pytest.mark.parametrize(
    "name", ["", "two", "batch", "batch.", "batch.2", "batch.257", "batch.x", "one.p98", "mixed.3"]
)
def test_unknown_cells_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="there is no cell"):
        cell(name)


def test_texts_have_the_tokens_of_the_cell_and_never_repeat() -> None:
    asked = cell("batch.20").command(Prompts())["texts"]
    assert len(asked) == 32 == len(set(asked)) and {len(text.split()) for text in asked} == {18}
    one = cell("one").command(Prompts())
    assert one["alone"] and len(one["texts"]) == 100 and {len(text.split()) for text in one["texts"]} == {10}
    mixed = [len(text.split()) + 2 for text in cell("mixed").command(Prompts())["texts"]]
    assert len(mixed) == 256 and 3 <= min(mixed) < 15 and 120 < max(mixed) <= 256 and 30 < np.median(mixed) < 50


def test_words_are_told_apart_and_lower_case() -> None:
    assert len(embed.WORDS) == len(set(embed.WORDS)) > 100 and all(
        word.isascii() and word.islower() for word in embed.WORDS
    )


def test_values_are_rates_milliseconds_and_sizes() -> None:
    answer = {"seconds": 4.0, "each": [0.003] * 98 + [0.5, 0.9], "bytes": 3 << 20}
    assert cell("batch.20").value(answer) == 8 and cell("mixed").value(answer) == 64
    assert cell("one").value(answer) == pytest.approx(3) and cell("one.p99").value(answer) == pytest.approx(900)
    assert cell("memory").value(answer) == 3
    better = {name: cell(name).better for name in embed.USUAL}
    assert {name for name, way in better.items() if way == "higher"} == {"batch.20", "batch.200", "mixed", "cosine"}


def test_a_row_sets_our_best_beside_the_best_peer() -> None:
    found = {
        ("mixed", "octavo:bf16"): Found("1", Samples([200.0], [0.0])),
        ("mixed", "a:bf16"): Found("2", Samples([50.0], [0.0])),
        ("mixed", "b:bf16"): Found(error="it fell over"),
    }
    made = embed._row(cell("mixed"), found, ["octavo:bf16"], ["a:bf16", "b:bf16"], "16", 2)
    assert made is not None and made["times"] == 4 and made["peer"] == "a:bf16" and made["by"] == "octavo:bf16"
    assert made["all"]["b:bf16"] == {"error": "it fell over"}
    assert "| mixed | texts/s | **200**" in embed._markdown("title", [made])
    assert embed._row(cell("mixed"), {}, ["octavo:bf16"], [], "16", 2) is None


@pytest.mark.parametrize("width", embed.OURS)
def test_every_contender_has_its_program(width: str) -> None:
    for name, form in (*(("octavo", form) for form in embed.OURS[width]), *embed.THEIRS[width]):
        made = embed.contender(name, form)
        assert (PEERS / made.engine.script).is_file() and made.engine.env["EMBED_FORM"] in ("none", form)
        assert made.is_ours == (name == "octavo")


def vectors(texts: list[str]) -> Any:
    """Two numbers that tell texts apart."""
    return np.array([[len(text), ord(text[0])] for text in texts], np.float32)


def test_peers_time_every_call_and_write_vectors(tmp_path: Path) -> None:
    calls: list[int] = []

    def call(texts: list[str]) -> Any:
        calls.append(len(texts))
        return vectors(texts)

    file = tmp_path / "vectors"
    command = {"texts": ["a", "bcd", "ef"], "file": str(file)}
    found = embedding.answer(call, command)
    assert calls == [3] and len(found["each"]) == 1 and found["seconds"] == sum(found["each"])
    found = embedding.answer(call, {**command, "alone": True})
    assert calls == [3, 1, 1, 1] and len(found["each"]) == 3
    assert np.fromfile(file, np.float32).reshape(3, 2).tolist() == vectors(command["texts"]).tolist()


def test_batches_of_like_lengths_come_back_in_order() -> None:
    sizes: list[list[int]] = []

    def call(texts: list[str]) -> Any:
        sizes.append([len(text) for text in texts])
        return vectors(texts)

    texts = [chr(97 + place % 26) * (1 + place * 7 % 40) for place in range(70)]
    assert embedding.by_length(call, texts).tolist() == vectors(texts).tolist()
    assert [len(part) for part in sizes] == [32, 32, 6] and min(sizes[0]) >= max(sizes[1])
