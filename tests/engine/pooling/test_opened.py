"""What bounds a step: a text of any length that the model takes fits one, several share one only up to where that gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.golden import tiny_rankers, tiny_sentences

from octavo.engine.embedder import Embedder
from octavo.engine.pooling.opened import SHARED_TOKENS
from octavo.engine.reranker import Reranker


@pytest.mark.parametrize(
    ("most", "options", "shared"),
    [(1024, {}, 1024), (4096, {}, SHARED_TOKENS), (4096, {"max_batch_tokens": 3000}, 3000), (300, {}, 512)],
)
def test_texts_share_steps_up_to_a_bound(most: int, options: dict[str, Any], shared: int, tmp_path: Path) -> None:
    folder = tiny_rankers.write(tmp_path / "Qwen3-Reranker", base="qwen3", config={"max_position_embeddings": most})
    reranker = Reranker(folder, platform="reference", num_threads=1, **options)
    assert (reranker.max_tokens, reranker._classifier.max_batch_tokens) == (most, shared)


def test_a_text_longer_than_what_texts_share_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_sentences.write_case("qwen3_embedding", tmp_path)
    whole = Embedder(folder, platform="reference", num_threads=1)
    texts = ["the cat", "a dog sat on the mat " * 8, "the river"]
    monkeypatch.setattr("octavo.engine.pooling.opened.SHARED_TOKENS", 8)
    narrow = Embedder(folder, platform="reference", num_threads=1, max_batch_tokens=8, max_num_seqs=4)
    assert narrow.max_batch_tokens == 8 and narrow.embed(texts).tobytes() == whole.embed(texts).tobytes()
