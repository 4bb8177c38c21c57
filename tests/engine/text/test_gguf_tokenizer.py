"""GGUF tokenizers give the ids of the tokenizers they were made from."""

from __future__ import annotations

import json
import os

import pytest
from tests.engine.text.corpus import digests, make_lines
from tests.engine.text.vocabularies import (
    GOLDEN,
    as_gguf,
    chatml_tokenizer,
    llama3_tokenizer,
    sentencepiece_metadata,
    smollm2_tokenizer,
    train_byte_level,
)
from tests.golden.make_tokenizer_golden import sentencepiece_lines
from tokenizers import Tokenizer as Rust
from tokenizers import models, normalizers, pre_tokenizers, processors

from octavo.engine.errors import ModelError
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.text.gguf_tokenizer import build_gguf_tokenizer
from octavo.engine.text.pretokenizers import PRE_TOKENIZERS
from octavo.engine.text.tokenizer import Tokenizer

LINES = make_lines(10_000)


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "falcon", "olmo", "llama-bpe", "qwen2", "tekken"])
def test_byte_level_ids_equal_the_original_tokenizer(pre: str) -> None:
    original = train_byte_level(pre, ("<|end|>",), ("<tag>",))
    # Through JSON, as a model folder would carry it.
    original = Rust.from_str(original.to_str())
    converted = build_gguf_tokenizer(as_gguf(original, pre)).rust
    wrong = [
        line
        for line, a, b in zip(
            LINES,
            original.encode_batch_fast(LINES, add_special_tokens=False),
            converted.encode_batch_fast(LINES, add_special_tokens=False),
            strict=True,
        )
        if a.ids != b.ids
    ]
    assert wrong == []


def test_families_differ_so_that_a_wrong_pre_tokenizer_would_be_seen() -> None:
    original = train_byte_level("qwen2")
    as_other = build_gguf_tokenizer(as_gguf(original, "llama-bpe")).rust
    text = "12345 e\u0301"
    assert original.encode(text).ids != as_other.encode(text).ids


@pytest.mark.parametrize("name", ["bpe_prefix", "bpe_plain", "unigram_prefix", "unigram_plain"])
def test_sentencepiece_ids_equal_the_sentencepiece_library(name: str) -> None:
    metadata, expected = sentencepiece_metadata(name)
    tokenizer = Tokenizer.from_gguf(metadata)
    ids = [tokenizer.encode(line, add_special=False, parse_special=True) for line in sentencepiece_lines()]
    assert digests(ids) == expected


def test_real_smollm2_ids_equal_llama_cpp() -> None:
    expected = json.loads((GOLDEN / "smollm2.json").read_text())["digests"]
    tokenizer = smollm2_tokenizer()
    assert digests(tokenizer.encode(line, add_special=False) for line in LINES) == expected


def test_real_gemma3_ids_equal_llama_cpp() -> None:
    path = os.environ.get("TEST_GEMMA3")
    if not path:
        pytest.skip("no Gemma 3 file: set TEST_GEMMA3 to its path")
    expected = json.loads((GOLDEN / "gemma3.json").read_text())["digests"]
    file = GGUFFile.open(path)
    tokenizer = Tokenizer.from_gguf(file.metadata)
    file.close()
    assert digests(tokenizer.encode(line, add_special=False) for line in LINES) == expected
    assert tokenizer.bos_id == 2 and set(tokenizer.eos_ids) == {1, 106}


def _bert_metadata(words: list[str]) -> dict[str, object]:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": special + words,
        "tokenizer.ggml.token_type": [3] * len(special) + [1] * len(words),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }


def test_accented_words_of_an_uncased_model_are_not_unknown() -> None:
    tokenizer = Tokenizer.from_gguf(_bert_metadata(["▁kanto", "▁cafe", "▁漢", "▁字", "s"]))

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False)

    kanto, cafe = tokenizer.token_id("kanto"), tokenizer.token_id("cafe")
    assert ids("Kantō") == ids("KANTO") == ids("kanto") == [kanto]
    assert ids("Café") == ids("Cafe\u0301") == [cafe]
    assert ids("漢字") == [tokenizer.token_id("漢"), tokenizer.token_id("字")]
    assert ids("cafes") == [cafe, tokenizer.token_id("##s")]
    assert tokenizer.encode("cafe") == [2, cafe, 3]
    assert tokenizer.encode_pair("cafe", "kanto s") == ([2, cafe, 3, kanto, 1, 3], [0, 0, 0, 1, 1, 1])


def test_cased_word_pieces_keep_case_and_accents() -> None:
    tokenizer = Tokenizer.from_gguf(_bert_metadata(["▁Kanto", "▁kanto"]))
    assert tokenizer.encode("Kanto kanto Kantō", add_special=False) == [5, 6, 1]


def test_word_piece_ids_equal_the_original_on_all_scripts() -> None:
    words = sorted({word for line in LINES[:2000] for word in normalizers.BertNormalizer().normalize_str(line).split()})
    vocab = [f"▁{word}" for word in words if len(word) < 12] + [chr(c) for c in range(0x21, 0x250)]
    vocab = list(dict.fromkeys(vocab))
    metadata = _bert_metadata(vocab)
    plain = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(w[1:] if w[0] == "▁" else "##" + w for w in vocab)]
    table: dict[str, int] = {}
    for index, word in enumerate(plain):
        table.setdefault(word, index)
    original = Rust(models.WordPiece(vocab=table, unk_token="[UNK]"))
    original.normalizer = normalizers.BertNormalizer(lowercase=False)
    original.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    is_lower = all(w == w.lower() for w in table if not w.startswith("["))
    original.normalizer = normalizers.BertNormalizer(lowercase=is_lower)
    tokenizer = Tokenizer.from_gguf(metadata)
    for line in LINES:
        assert tokenizer.encode(line, add_special=False) == original.encode(line, add_special_tokens=False).ids


def test_bos_and_eos_flags_and_their_defaults() -> None:
    assert llama3_tokenizer().encode("a")[0] == llama3_tokenizer().bos_id  # the family's default
    assert not chatml_tokenizer().adds_bos
    metadata, _ = sentencepiece_metadata("bpe_prefix")
    assert Tokenizer.from_gguf(metadata).encode("a")[0] == 1
    metadata["tokenizer.ggml.add_bos_token"] = False
    metadata["tokenizer.ggml.add_eos_token"] = True
    ids = Tokenizer.from_gguf(metadata).encode("a")
    assert ids[0] != 1 and ids[-1] == 2


def test_every_id_of_the_file_keeps_its_place_and_bytes() -> None:
    tokenizer = chatml_tokenizer()
    for index in range(tokenizer.vocab_size):
        assert tokenizer.token_id(tokenizer.token(index)) == index
    single = [i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) == 1]
    assert {tokenizer.token_bytes(i) for i in single} == {bytes([b]) for b in range(256)}


def test_damaged_or_unknown_metadata_is_one_clear_error() -> None:
    good = as_gguf(train_byte_level("gpt-2"), "gpt-2")
    cases = {
        "no tokenizer": {k: v for k, v in good.items() if not k.endswith("tokens")},
        "'rwkv'": {**good, "tokenizer.ggml.model": "rwkv"},
        "'surprise'": {**good, "tokenizer.ggml.pre": "surprise"},
        "no tokenizer.ggml.merges": {k: v for k, v in good.items() if not k.endswith("merges")},
        "does not fit": {**good, "tokenizer.ggml.merges": ["nothing here", "zz qq"]},
        "token_type": {**good, "tokenizer.ggml.token_type": [1]},
    }
    for word, metadata in cases.items():
        with pytest.raises(ModelError) as error:
            build_gguf_tokenizer(metadata)
        assert word in str(error.value) and "\n" not in str(error.value)


def test_embedded_original_is_used_if_it_fits_the_token_list(caplog: pytest.LogCaptureFixture) -> None:
    original = train_byte_level("qwen2", ("<|end|>",))
    metadata = {**as_gguf(original, "qwen2"), "tokenizer.ggml.pre": "surprise"}
    metadata["tokenizer.huggingface.json"] = original.to_str()
    rust = build_gguf_tokenizer(metadata).rust
    assert [rust.encode(line).ids for line in LINES[:200]] == [original.encode(line).ids for line in LINES[:200]]
    for wrong in (train_byte_level("gpt-2", ("<|end|>", "<|more|>")).to_str(), "{"):
        caplog.clear()
        converted = build_gguf_tokenizer({**as_gguf(original, "qwen2"), "tokenizer.huggingface.json": wrong}).rust
        assert "converting" in caplog.text
        assert converted.encode(LINES[0]).ids == original.encode(LINES[0]).ids


def test_every_pre_tokenizer_name_builds_and_loses_no_character() -> None:
    for name, family in PRE_TOKENIZERS.items():
        pieces = family.build().pre_tokenize_str("Hello wOrld's 12345 漢字\n\n  x?! é")
        assert sum(end - start for _, (start, end) in pieces) >= 30, name


def _xlm_roberta() -> tuple[Rust, dict[str, object]]:
    """A unigram tokenizer as XLM-RoBERTa's tokenizer.json has it, and the keys that converters write of it."""
    words = [
        "\u2581the",
        "\u2581cat",
        "\u2581mat",
        "s",
        "\u2581",
        "\u2581sat",
        "a",
        "t",
        "\u2581東京",
        "東",
        "ly",
        ",",
        ".",
    ]
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(word, -2.0 - place / 7) for place, word in enumerate(words)]
    original = Rust(models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3))
    original.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    original.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    original.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    metadata: dict[str, object] = {
        "general.architecture": "bert",
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [text for text, _ in pieces] + ["<mask>"],
        "tokenizer.ggml.scores": [score for _, score in pieces] + [0.0],
        "tokenizer.ggml.token_type": [3, 3, 3, 2] + [1] * len(words) + [3],
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.remove_extra_whitespaces": True,
        "tokenizer.ggml.token_type_count": 1,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.seperator_token_id": 2,
        "tokenizer.ggml.padding_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
    }
    return original, metadata


@pytest.mark.parametrize("text", ["the cat sat", "  the  cats ,mat. ", "東京 東 x", "", " ", "catly\u2581mat", "zz zz"])
def test_xlm_robertas_ids_equal_the_original(text: str) -> None:
    original, metadata = _xlm_roberta()
    tokenizer = Tokenizer.from_gguf(metadata)
    assert tokenizer.encode(text) == original.encode(text).ids
    encoding = original.encode(text, "the mat")
    assert tokenizer.encode_pair(text, "the mat") == (encoding.ids, encoding.type_ids)


def test_an_unknown_token_that_is_not_named_is_the_one_of_that_type() -> None:
    original, metadata = _xlm_roberta()
    del metadata["tokenizer.ggml.unknown_token_id"]
    assert Tokenizer.from_gguf(metadata).encode("cat x") == original.encode("cat x").ids


def test_t5s_pairs_have_one_separator() -> None:
    _, metadata = _xlm_roberta()
    tokenizer = Tokenizer.from_gguf({**metadata, "general.architecture": "t5", "tokenizer.ggml.add_bos_token": False})
    assert tokenizer.encode_pair("the", "cat")[0] == [4, 2, 5, 2]


def test_words_that_a_user_added_are_spelled_without_the_mark_of_their_start() -> None:
    metadata = _bert_metadata(["\u2581cat", "\u2581<tag>"])
    types = [*[3] * 5, 1, 4]
    tokenizer = Tokenizer.from_gguf({**metadata, "tokenizer.ggml.token_type": types})
    assert tokenizer.encode("cat<tag> cat", add_special=False) == [5, 6, 5]
