"""Sparse vectors and vectors of tokens are sentence-transformers', the same bits in any company; one pass gives several."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.models import encoder_drive
from tests.golden import make_token_golden, tiny_sentences, tiny_tokens

from octavo.engine.embedder import Embedder
from octavo.engine.errors import ModelError, RequestError
from octavo.engine.loading.torch_file import read_torch_file
from octavo.engine.models.raw import floats_of
from octavo.engine.pooling.late import Sparse, max_sim
from octavo.engine.pooling.token_runner import saturated
from octavo.platforms.registry import PLATFORMS, choose_platform
from octavo.platforms.types import F32, RawTensor

BOUND = 1e-5  # of the largest value, or of 1 where all are smaller
NATIVE = [entry.name for entry in PLATFORMS if entry.name in ("x86", "arm") and not entry.probe()]
PLACES = ["reference", *NATIVE]
SPARSE = [name for name, (how, _) in tiny_tokens.CASES.items() if how == "sparse"]
LATE = [name for name in tiny_tokens.CASES if name not in SPARSE]
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Case -> its folder, written once."""
    root = tmp_path_factory.mktemp("tokens")

    def written(name: str) -> Path:
        path = root / name
        if path.is_dir():
            return path
        if name.startswith("joined"):
            return tiny_tokens.write_joined(path, name.removeprefix("joined"))
        return tiny_tokens.write_case(name, path)

    return written


def opened(path: Path, **options: Any) -> Embedder:
    return Embedder(path, **{"platform": "reference", "num_threads": 1, **options})


def whole(sparse: Sparse | None) -> F32:
    assert (
        sparse is not None
        and sparse.ids.dtype == np.int32
        and (np.diff(sparse.ids) > 0).all()
        and (sparse.weights > 0).all()
    )
    found = np.zeros(256, np.float32)
    found[sparse.ids] = sparse.weights
    return found


def close_to(found: F32, wanted: F32, what: str) -> None:
    assert found.dtype == np.float32 and found.shape == wanted.shape, f"{what}: {found.shape}, not {wanted.shape}"
    worst = float(np.abs(found - wanted).max()) / max(1.0, float(np.abs(wanted).max()))
    assert worst <= BOUND, f"{what}: {worst:.2e} from the oracle"


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_vectors_are_those_of_sentence_transformers(name: str, platform: str, folder: Folder) -> None:
    embedder = opened(folder(name), platform=platform)
    assert embedder.outputs == ("sparse",) and embedder.similarity == "dot" and embedder.dim == 256
    found = embedder.encode_each(tiny_tokens.TEXTS)
    with np.load(make_token_golden.FILE) as golden:
        for place, one in enumerate(found):
            close_to(whole(one.sparse), golden[f"{name}_sparse_{place}"], f"{name} {place}")
            assert one.dense is None and one.multi_vector is None and one.num_tokens > 2


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("name", LATE)
def test_vectors_of_tokens_are_those_of_sentence_transformers(name: str, platform: str, folder: Folder) -> None:
    embedder = opened(folder(name), platform=platform)
    assert embedder.outputs == ("multi_vector",) and embedder.similarity == "maxsim" and embedder.dim == 24
    roles: tuple[Any, ...] = ("query", "document")
    with np.load(make_token_golden.FILE) as golden:
        for role in roles:
            for place, one in enumerate(embedder.encode_each(tiny_tokens.TEXTS, role=role)):
                assert one.multi_vector is not None
                close_to(one.multi_vector, golden[f"{name}_{role}_{place}"], f"{name} {role} {place}")
    first, second = (embedder.encode_each(tiny_tokens.TEXTS, role=role) for role in (None, "document"))
    assert all(np.array_equal(a.multi_vector, b.multi_vector) for a, b in zip(first, second, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("name", ["splade", "splade_sum", "late", "stanford"])
def test_company_order_and_steps_change_no_bit(name: str, platform: str, folder: Folder) -> None:
    texts = [*tiny_tokens.TEXTS, "the " * 60]
    embedder = opened(folder(name), platform=platform)

    def bits(found: list[Any]) -> list[bytes]:
        return [
            one.multi_vector.tobytes() if one.multi_vector is not None else whole(one.sparse).tobytes() for one in found
        ]

    together = bits(embedder.encode_each(texts, role="query", truncate="end"))
    assert [bits(embedder.encode_each(text, role="query", truncate="end"))[0] for text in texts] == together
    assert bits(embedder.encode_each(texts[::-1], role="query", truncate="end"))[::-1] == together
    small = opened(folder(name), platform=platform, max_batch_tokens=64, max_num_seqs=2)
    assert bits(small.encode_each(texts, role="query", truncate="end")) == together


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_three_outputs_of_one_pass(suffix: str, platform: str, folder: Folder) -> None:
    """Against the formulas of bge-m3 in float64, over the encoder's own hidden states."""
    path = folder(f"joined{suffix}")
    embedder = opened(path, platform=platform)
    assert embedder.outputs == ("dense", "sparse", "multi_vector")
    texts = ["the cat sat", "a dog a dog , the river"]
    found = embedder.encode_each(texts)
    place = choose_platform(platform, 1).platform
    ids = [np.array(embedder.tokenizer.encode(text), np.int32) for text in texts]
    hidden = encoder_drive.run(place, encoder_drive.load(place, path), ids)
    linear = {name: _linear(folder("joined.pt") / f"{name}.pt") for name in ("sparse_linear", "colbert_linear")}
    never = {embedder.tokenizer.token_id(name) for name in ("[CLS]", "[SEP]", "[PAD]", "[UNK]")}
    for one, rows, tokens in zip(found, hidden, ids, strict=True):
        wide = rows.astype(np.float64)
        assert one.dense is not None and one.multi_vector is not None
        close_to(one.dense, (wide[0] / np.linalg.norm(wide[0])).astype(np.float32), "dense")
        vectors = wide[1:] @ linear["colbert_linear"][0].T + linear["colbert_linear"][1]
        close_to(
            one.multi_vector, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), "vectors"
        )
        weights = np.maximum(wide @ linear["sparse_linear"][0].T + linear["sparse_linear"][1], 0)[:, 0]
        wanted = np.zeros(256, np.float32)
        for token, weight in zip(tokens.tolist(), weights, strict=True):
            if token not in never:
                wanted[token] = max(wanted[token], weight)
        close_to(whole(one.sparse), wanted, "sparse")
    for output in embedder.outputs:
        (single,) = embedder.encode_each(texts[1], outputs=[output])
        for name in embedder.outputs:
            value, expected = getattr(single, name), getattr(found[1], name)
            assert (value is None) == (name != output)
            if name == output and name != "sparse":
                assert value.tobytes() == expected.tobytes()
    assert found[0].dense is not None and found[0].dense.tobytes() == embedder.embed(texts[0])[0].tobytes()


def _linear(file: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    tensors = read_torch_file(file)
    weight, bias = (floats_of(RawTensor(name, *tensors[name])).astype(np.float64) for name in ("weight", "bias"))
    return weight, bias


def test_a_bad_text_costs_only_itself_and_what_is_cut_is_said(folder: Folder) -> None:
    late = opened(folder("late"))
    long = "the cat sat on the mat " * 30
    found = late.encode_each(["a cat", "", long, 7], role="query")  # type: ignore[list-item]
    assert [bool(one.error) for one in found] == [False, True, True, True] and "20 is the limit" in found[2].error
    (cut,) = late.encode_each(long, role="query", truncate="end")
    assert cut.num_tokens == 20 and cut.truncated_from > 20
    assert late.encode_each(long, truncate="end")[0].num_tokens == 40  # of documents
    sparse = opened(folder("splade"))
    assert [bool(one.error) for one in sparse.encode_each(["a cat", "", "a dog"])] == [False, True, False]


def test_text_cannot_spell_a_marker(folder: Folder) -> None:
    embedder = opened(folder("late"))
    late = embedder._entered.late
    assert late is not None
    marker = embedder.tokenizer.token_id("[Q] ")
    item = late.item("[Q] a cat", "query", "error")
    assert item.ids.count(marker) == 1 and item.ids[1] == marker  # type: ignore[arg-type]


def test_what_a_model_does_not_give_is_refused(folder: Folder) -> None:
    sparse, joined = opened(folder("splade")), opened(folder("joined.pt"))
    with pytest.raises(RequestError, match="this model gives sparse, no vector of a whole text; use encode_each"):
        sparse.embed("a cat")
    for bad in (["dense"], [], "sparse"):
        with pytest.raises(RequestError, match=r"outputs is .*; this model gives sparse"):
            sparse.encode_each("a cat", outputs=bad)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="role is 'passage'; it must be query or document"):
        joined.encode_each("a cat", role="passage")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="truncate is 'longest'; it must be error, start or end"):
        joined.encode_each("a cat", truncate="longest")  # type: ignore[arg-type]


def test_a_model_of_single_vectors_gives_them_here_too(tmp_path: Path) -> None:
    embedder = opened(tiny_sentences.write(tmp_path))
    assert embedder.outputs == ("dense",)
    one, bad = embedder.encode_each(["a cat", ""])
    assert (
        one.dense is not None
        and one.dense.tobytes() == embedder.embed("a cat")[0].tobytes()
        and bad.error == "it is empty"
    )


def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    joined = tiny_tokens.write_joined(tmp_path / "joined", ".pt")
    tiny_tokens._write_pt(
        joined / "sparse_linear.pt", {"weight": np.ones((1, 32), np.float32), "bias": np.ones(1, np.float32)}
    )
    with pytest.raises(
        ModelError, match=r"sparse_linear\.pt: weight and bias are \(1, 32\) and \(1,\); they must be \(1, 64\)"
    ):
        opened(joined)
    changes: tuple[tuple[str, str, dict[str, Any], str], ...] = (
        ("late", "2_MultiVectorMask/config.json", {"skiplist_tasks": ["other"]}, "skiplist_tasks"),
        ("late", "2_MultiVectorMask/config.json", {"keep_only_token_ids": [5]}, "keep_only_token_ids"),
        (
            "late",
            "sentence_bert_config.json",
            {"query_expansion": {"strategy": "more", "length": 9}},
            "strategy is 'more'",
        ),
        ("late", "1_Dense/config.json", {"module_input_name": "sentence_embedding"}, "module_input_name"),
        ("splade", "1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "pooling_strategy is 'mean'"),
        ("stanford", "artifact.metadata", {"similarity": "l2"}, "similarity is 'l2'"),
        (
            "stanford",
            "artifact.metadata",
            {"dim": 128},
            "dim is 128; it must be the width of the checkpoint's linear layer, 24",
        ),
    )
    for number, (case, name, change, text) in enumerate(changes):
        path = tiny_tokens.write_case(case, tmp_path / str(number))
        file = path / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        with pytest.raises(ModelError, match=text):
            opened(path)


def test_scores_of_late_interaction() -> None:
    query, document = np.eye(3, dtype=np.float32)[:2], np.array([[0.5, 0, 0], [0, 0.25, 1]], np.float32)
    assert max_sim(query, document) == 0.75 and max_sim(query, document[:0]) == 0.0


def test_saturation_in_float64() -> None:
    x = np.array([-1, 0, 1e-30, 1e-9, 1e-7, 1e-4, 0.3, 1, 7, 1e4], np.float32)
    wanted = np.log1p(np.maximum(x, 0).astype(np.float64))
    np.testing.assert_allclose(saturated(x), wanted, rtol=3e-7)
    np.testing.assert_allclose(saturated(x, is_doubled=True), np.log1p(wanted), rtol=6e-7)
