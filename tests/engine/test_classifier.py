"""Labels of texts, pairs and tokens: raw scores are transformers', what they become is config.json's `problem_type`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import make_head_golden, tiny_encoders, tiny_heads, tiny_pairs, tiny_sentences

from octavo.engine.classifier import Classifier
from octavo.engine.errors import ModelError, RequestError
from octavo.engine.pooling.pairs import longest_first
from octavo.engine.pooling.scores import activated, label_activation

BOUND = 1e-5


def opened(path: Path, **options: Any) -> Classifier:
    return Classifier(path, **{"platform": "reference", "num_threads": 1, **options})


def test_token_ids_give_the_scores_of_transformers(tmp_path: Path) -> None:
    classifier = opened(tiny_pairs.write(tmp_path, case="roberta_sequence"))
    ids = [int(i) for i in tiny_encoders.prompt("roberta_masked", 33)]
    with np.load(make_head_golden.FILE) as golden:
        wanted = golden["roberta_sequence_33"]
    assert float(np.abs(classifier.classify([ids], activation="none")[0] - wanted).max()) <= BOUND
    assert classifier.labels == ("LABEL_0", "LABEL_1")
    np.testing.assert_allclose(classifier.classify([ids]).sum(), 1, atol=1e-6)


def test_tokens_have_scores_of_their_own(tmp_path: Path) -> None:
    folder = tiny_heads.write_safetensors("roberta_token", tmp_path)
    tiny_sentences.write_tokenizer(folder)
    classifier = opened(folder)
    assert classifier.is_per_token and classifier.labels == ("no", "maybe", "yes")
    found = classifier.classify_each(["the cat sat", "", "a"])
    assert [item.error for item in found] == ["", "it is empty", ""]
    assert found[0].scores is not None and found[0].scores.shape == (5, 3) == (found[0].num_tokens, 3)
    assert found[0].ids == tuple(classifier.tokenizer.encode("the cat sat"))
    np.testing.assert_allclose(found[0].scores.sum(axis=1), 1, atol=1e-6)
    alone = classifier.classify_each("the cat sat")[0]
    assert alone.scores is not None and alone.scores.tobytes() == found[0].scores.tobytes()
    ids = [int(i) for i in tiny_encoders.prompt("roberta_masked", 33)]
    with np.load(make_head_golden.FILE) as golden:
        wanted = golden["roberta_token_33"]
    raw = classifier.classify_each([ids], activation="none")[0].scores
    assert raw is not None and float(np.abs(raw[tiny_encoders.golden_rows(33)] - wanted).max()) <= BOUND
    with pytest.raises(RequestError, match="scores for every token; use classify_each"):
        classifier.classify(["a"])


def test_texts_and_pairs_share_a_call(tmp_path: Path) -> None:
    classifier = opened(tiny_pairs.write(tmp_path, case="bert_sequence"))
    items: list[Any] = ["the cat", ("the cat", "a dog"), [5, 6], ["the cat", "a dog"]]
    found = classifier.classify(items)
    assert found[1].tobytes() == found[3].tobytes() == classifier.classify(("the cat", "a dog"))[0].tobytes()
    assert found[0].tobytes() == classifier.classify("the cat")[0].tobytes() != found[1].tobytes()
    assert found[2].tobytes() == classifier.classify([5, 6])[0].tobytes()
    long = "the cat sat " * 100
    assert classifier.classify_each(["a", long], truncate="start")[1].truncated_from == 302
    assert classifier.classify_each([("a", long)], truncate="only_second")[0].num_tokens == 100
    for truncate, some, text in (
        ("start", ["a", ("a", "b")], "item 1 is a pair; pairs lose longest_first or only_second"),
        ("only_second", [("a", "b"), "a"], "item 1 is no pair; texts lose their start or end"),
        ("middle", ["a"], "it must be one of error, start, end, longest_first, only_second"),
    ):
        with pytest.raises(RequestError, match=text):
            classifier.classify_each(some, truncate=truncate)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="activation is 'exp'; it must be one of"):
        classifier.classify("a", activation="exp")
    with pytest.raises(RequestError, match="item 1: it is empty"):
        classifier.classify(["a", ""])
    for bad in (5, b"text", {"a": 1}):
        with pytest.raises(RequestError, match="give text, token ids, a pair of texts, or a list of these"):
            classifier.classify(bad)  # type: ignore[arg-type]


def test_what_scores_become_by_the_kind_of_problem() -> None:
    assert label_activation({}, 3) == label_activation({"problem_type": "single_label_classification"}, 3) == "softmax"
    assert label_activation({}, 1) == label_activation({"problem_type": "multi_label_classification"}, 3) == "sigmoid"
    assert label_activation({"problem_type": "regression"}, 1) == "none"
    with pytest.raises(ModelError, match="problem_type is 'x'; it must be one of regression"):
        label_activation({"problem_type": "x"}, 1)


def test_activations_in_float64() -> None:
    x = np.array([[2.0, -1.0, 0.5], [80.0, -80.0, 0.0]], np.float32)
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    np.testing.assert_allclose(activated(x, "softmax"), powers / powers.sum(axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(activated(x[:, :2], "softmax")[0], [0.952574, 0.047426], atol=1e-6)
    np.testing.assert_allclose(activated(x, "sigmoid"), 1 / (1 + np.exp(-wide)), atol=1e-6)
    np.testing.assert_allclose(activated(x, "tanh"), np.tanh(wide), atol=1e-6)
    assert activated(x, "none") is x and activated(x, "relu").min() == 0


def test_what_two_texts_keep_is_what_tokenizers_keep() -> None:
    """Against the tokenizers library, for all lengths up to 12 and every room."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    rust = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    for room in range(2, 13):
        rust.enable_truncation(room, strategy="longest_first")
        for first in range(1, 13):
            for second in range(1, 13):
                ids = rust.encode(" ".join("a" * first), " ".join("b" * second)).ids
                wanted = (ids.count(0), ids.count(1))
                kept = (first, second) if first + second <= room else longest_first(first, second, room)
                assert kept == wanted, (first, second, room)
