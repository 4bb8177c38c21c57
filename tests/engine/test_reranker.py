"""Scores are sentence-transformers', the same bits in any company, order, threads and level; a bad document costs only itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden import make_pair_golden, tiny_encoders, tiny_heads, tiny_pairs, tiny_sentences

from octavo.engine.classifier import Classifier
from octavo.engine.embedder import Embedder
from octavo.engine.errors import ConfigError, ModelError, RequestError
from octavo.engine.reranker import Reranker, Score, ranked
from octavo.platforms.cpu.module import load
from octavo.platforms.limits import Limits
from octavo.platforms.recorded.native import Native
from octavo.platforms.registry import PLATFORMS

BOUND = 1e-5
NATIVE = [entry.name for entry in PLATFORMS if entry.name in ("x86", "arm") and not entry.probe()]
PLACES = ["reference", *NATIVE]
DOCUMENTS = ["the old tree", "a", "The cat sat on the mat. " * 9, "river , river", "a small dog ran"]
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Case -> its folder, written once."""
    root = tmp_path_factory.mktemp("pairs")

    def written(name: str) -> Path:
        path = root / name
        return path if path.is_dir() else tiny_pairs.write_case(name, path)

    return written


def opened(path: Path, **options: Any) -> Reranker:
    return Reranker(path, **{"platform": "reference", "num_threads": 1, **options})


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("name", tiny_pairs.CASES)
def test_scores_are_those_of_sentence_transformers(name: str, platform: str, folder: Folder) -> None:
    with np.load(make_pair_golden.FILE) as golden:
        wanted = golden[name]
    pairs: Any = tiny_pairs.PAIRS
    if wanted.ndim == 1:
        found = opened(folder(name), platform=platform).score(pairs, truncate="longest_first")
    else:
        classifier = Classifier(folder(name), platform=platform)
        found = classifier.classify(pairs, truncate="longest_first", activation="none")
        assert classifier.labels == ("no", "maybe", "yes")
    assert found.dtype == np.float32 and found.shape == wanted.shape
    assert float(np.abs(found - wanted).max()) <= BOUND


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("name", ["one", "xlm", "modernbert"])
def test_company_order_and_steps_change_no_bit(name: str, platform: str, folder: Folder) -> None:
    reranker = opened(folder(name), platform=platform)
    pairs = [("the cat", document) for document in DOCUMENTS]
    together = reranker.score(pairs).tobytes()
    assert b"".join(reranker.score([pair]).tobytes() for pair in pairs) == together
    assert np.ascontiguousarray(reranker.score(pairs[::-1])[::-1]).tobytes() == together
    small = opened(folder(name), platform=platform, max_batch_tokens=100, max_num_seqs=2)
    assert small.score(pairs).tobytes() == together


@pytest.mark.skipif(not NATIVE, reason="no native kernels here")
@pytest.mark.parametrize("quantization", ["none", "w8a8"])
def test_threads_and_levels_change_no_bit(quantization: str, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "most_threads", 3)
    pairs = [("the cat", document) for document in DOCUMENTS]
    expected = opened(folder("one"), quantization=quantization).score(pairs).tobytes()
    levels = Native(load()).runnable_levels()
    for options in ({"num_threads": 3}, {"isa": levels[:1]}, {"isa": levels[: len(levels) // 2 + 1]}):
        reranker = opened(folder("one"), platform=NATIVE[0], quantization=quantization, **options)
        assert reranker.score(pairs).tobytes() == expected, options


def test_segments_are_the_post_processors(folder: Folder) -> None:
    (item,) = opened(folder("one")).pairs.items([("cat dog", "a mat tree")], "", "error")
    ids = opened(folder("one")).tokenizer.encode
    middle = [*ids("cat dog", add_special=False), 3]
    assert item.ids == [2, *middle, *ids("a mat tree", add_special=False), 3]
    assert item.types == [0, 0, 0, 0, 1, 1, 1, 1]
    (item,) = opened(folder("no_segments")).pairs.items([("cat dog", "a mat tree")], "", "error")
    assert item.types is None


def test_one_row_of_segments_serves_all(folder: Folder, tmp_path: Path) -> None:
    """A RoBERTa whose tokenizer gives second segments gets zeros, as it has no other."""
    two = tiny_pairs.write(tmp_path / "two", case="xlm_sequence")
    assert opened(two).score([("a cat", "a dog")]) == opened(folder("xlm")).score([("a cat", "a dog")])


def test_ranking_is_sorted_cut_and_stable(folder: Folder) -> None:
    reranker = opened(folder("one"))
    found = reranker.rank("the cat", DOCUMENTS)
    scores = reranker.score([("the cat", document) for document in DOCUMENTS])
    assert [one.index for one in found] == np.argsort(-scores, kind="stable").tolist()
    assert [one.score for one in found] == sorted(scores.tolist(), reverse=True)
    assert reranker.rank("the cat", DOCUMENTS, top_n=2) == found[:2]
    assert reranker.rank("the cat", DOCUMENTS, top_n=9) == found
    twice = reranker.rank("the cat", ["a dog", "a cat", "a dog"])
    assert [one.index for one in twice if one.score == twice[-1].score or one.index != 1] in ([0, 2], [0, 2, 1])
    for bad in (0, -1, True, 1.5):
        with pytest.raises(RequestError, match=r"top_n is .*; it must be 1 or more"):
            reranker.rank("the cat", DOCUMENTS, top_n=bad)  # type: ignore[arg-type]
    for none in ([], "text", None):
        with pytest.raises(RequestError, match="documents must be a list of one text or more"):
            reranker.rank("the cat", none)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="query must be a text"):
        reranker.rank("", DOCUMENTS)


def test_equal_scores_keep_their_order_and_failures_come_last() -> None:
    given = [Score(0.1), Score(0.9), Score(None, error="why"), Score(0.5), Score(0.9)]
    assert [one.index for one in ranked(given)] == [1, 4, 3, 0, 2]
    assert [one.index for one in ranked(given, 1)] == [1, 2] and ranked(given, 1)[-1].error == "why"
    assert [one.index for one in ranked([Score(0.1), Score(0.9), Score(0.5)], 2)] == [1, 2]


def test_a_bad_document_costs_only_itself(folder: Folder) -> None:
    reranker = opened(folder("one"))
    documents: list[Any] = ["a cat", "", None, "word " * 500, 7, "a dog"]
    found = reranker.score_each([("the cat", document) for document in documents])
    assert [bool(item.error) for item in found] == [False, True, True, True, True, False]
    assert (
        "second text is empty" in found[1].error
        and "NoneType" in found[2].error
        and "100 is the limit" in found[3].error
    )
    alone = reranker.score([("the cat", "a cat"), ("the cat", "a dog")])
    assert [found[0].score, found[5].score] == alone.tolist()
    assert {one.index for one in reranker.rank("the cat", documents, top_n=1)} >= {1, 2, 3, 4}
    with pytest.raises(RequestError, match="pair 1: its second text is empty"):
        reranker.score([("the cat", "a"), ("the cat", "")])
    said = reranker.score_each(["ab", ("a",), ("a", "b", "c"), (b"a", "b")])  # type: ignore[arg-type,list-item]
    assert all("give a pair of two texts" in item.error for item in said[:3]) and "first text is bytes" in said[3].error


def test_a_long_pair_loses_what_was_asked_for_and_says_so(folder: Folder) -> None:
    reranker = opened(folder("cut"))  # 21 tokens, three of them special
    query, document = "a small dog ran", "the cat sat on a mat " * 50
    found = reranker.score_each([(query, document)], truncate="only_second")[0]
    assert found.num_tokens == 21 and found.truncated_from > 21
    words = document.split()
    (whole,) = reranker.score_each([(query, " ".join(words[:14]))])
    assert whole.truncated_from == 0 and whole.score == found.score
    assert found == reranker.score_each([(query, document)], truncate="longest_first")[0]
    (item,) = reranker.score_each([(document, "a")], truncate="only_second")
    assert "its first text alone leaves the second no room" in item.error
    with pytest.raises(RequestError, match="truncate is 'end'; for pairs it must be one of error, longest_first"):
        reranker.score([(query, document)], truncate="end")


def test_scores_become_what_is_asked_for(folder: Folder) -> None:
    reranker = opened(folder("one"))
    pairs = [("the cat", "a dog"), ("the cat", "a tree")]
    raw = reranker.score(pairs, activation="none")
    assert reranker.activation == "sigmoid" and opened(folder("identity")).activation == "none"
    np.testing.assert_allclose(reranker.score(pairs), 1 / (1 + np.exp(-raw.astype(np.float64))), atol=1e-7)
    for bad in ("softmax", "swish"):
        with pytest.raises(RequestError, match=f"activation is '{bad}'; it must be one of none, sigmoid"):
            reranker.score(pairs, activation=bad)


def test_an_activation_that_is_not_served_leaves_the_default(tmp_path: Path) -> None:
    folder = tiny_pairs.write(tmp_path, config={"sentence_transformers": {"activation_fn": "my.code.Scale"}})
    reranker = opened(folder)
    assert reranker.activation == "sigmoid"
    assert "my.code.Scale" in reranker._classifier.pipeline.notes[0]


def test_a_score_that_is_not_finite_is_an_error_of_its_pair(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = opened(folder("one"))
    runner = reranker._classifier._runner._runner
    run = runner.of_sequences

    def spoilt(*args: Any) -> NDArray[np.float32]:
        found = run(*args)
        found[1] = np.nan
        return found

    monkeypatch.setattr(runner, "of_sequences", spoilt)
    found = reranker.score_each([("a", "cat"), ("a", "dog"), ("a", "tree")])
    assert [item.score is None for item in found] == [False, True, False] and "not finite" in found[1].error


def test_models_of_another_use_are_refused_with_what_to_use(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gives scores of no, maybe, yes, .* use octavo\.Classifier"):
        opened(folder("labels"))
    token = tiny_heads.write_safetensors("bert_token", tmp_path / "token")
    tiny_sentences.write_tokenizer(token)
    with pytest.raises(ModelError, match=r"gives scores for every token.* use octavo\.Classifier"):
        opened(token)
    with pytest.raises(
        ModelError, match=r"BertForTokenClassification gives labels for every token: use octavo\.Classifier"
    ):
        Embedder(token, platform="reference")
    with pytest.raises(ModelError, match=r"BertForSequenceClassification gives scores .*use octavo\.Reranker"):
        Embedder(folder("one"), platform="reference")
    plain = tiny_encoders.write_safetensors("bert", tmp_path / "plain")
    tiny_sentences.write_tokenizer(plain)
    with pytest.raises(ModelError, match=r"BertModel has no head that classifies; .*octavo\.Embedder"):
        opened(plain)
    with pytest.raises(ConfigError, match="Reranker has no option 'num_thread'; did you mean num_threads"):
        Reranker(folder("one"), num_thread=2)


def test_a_module_behind_scores_is_refused(tmp_path: Path) -> None:
    folder = tiny_pairs.write(tmp_path, usage={})
    file = folder / "modules.json"
    dense = {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.base.modules.Dense"}
    file.write_text(json.dumps([*json.loads(file.read_text()), dense]))
    with pytest.raises(ModelError, match="Dense at 1_Dense is not served behind scores"):
        opened(folder)
