"""Tokenizers: decoding, bytes, BOS rules, bounded encoding, folders with tokenizer.json."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.engine.text.corpus import make_lines
from tests.engine.text.vocabularies import (
    LLAMA3_CONTROL,
    chatml_tokenizer,
    llama3_tokenizer,
    sentencepiece_tokenizer,
    train_byte_level,
)
from tokenizers import AddedToken, processors

from octavo.engine.errors import ModelError, RequestError
from octavo.engine.text.detokenizer import Detokenizer
from octavo.engine.text.spans import Trust
from octavo.engine.text.tokenizer import Tokenizer

LINES = make_lines(500, seed=3)


def _all() -> list[Tokenizer]:
    return [chatml_tokenizer(), llama3_tokenizer(), sentencepiece_tokenizer(), sentencepiece_tokenizer("unigram_plain")]


def test_text_survives_encoding_and_decoding() -> None:
    for tokenizer in (llama3_tokenizer(), sentencepiece_tokenizer("bpe_plain")):
        for line in LINES:
            if tokenizer is not llama3_tokenizer() and "\u2581" in line:
                continue  # SentencePiece spells the space with this character
            assert tokenizer.decode(tokenizer.encode(line, add_special=False), skip_special=False) == line


def test_decoding_equals_the_librarys_decoder() -> None:
    for tokenizer in _all():
        for line in LINES[:200]:
            ids = tokenizer.encode(line)
            if "\ufffd" not in (text := tokenizer.decode(ids)):
                assert text == tokenizer.rust.decode(ids)


def test_bytes_of_byte_tokens_words_and_control_tokens() -> None:
    llama2 = sentencepiece_tokenizer()
    assert llama2.token_bytes(llama2.token_id("<0x0A>") or 0) == b"\n"
    assert llama2.token_bytes(1) == b"<s>"
    assert b"".join(llama2.token_bytes(i) for i in llama2.encode("a  é", add_special=False)) == " a  é".encode()
    chatml = chatml_tokenizer()
    assert b"".join(chatml.token_bytes(i) for i in chatml.encode("né 👍🏽\x00")) == "né 👍🏽\x00".encode()
    with pytest.raises(RequestError, match="not in the vocabulary"):
        chatml.token(999_999_999)
    with pytest.raises(RequestError):
        chatml.token_bytes(-1)


def test_tokens_that_heads_have_beyond_the_vocabulary_are_no_text() -> None:
    chatml = chatml_tokenizer()
    ids = chatml.encode("one two")
    beyond = [chatml.vocab_size, chatml.vocab_size + 63]
    assert chatml.token_bytes(beyond[0]) == b"" and chatml.decode([*beyond, *ids, *beyond]) == "one two"
    assert Detokenizer(chatml).push([ids[0], *beyond, *ids[1:]]) == "one two"


def test_chat_prompt_has_exactly_one_bos() -> None:
    tokenizer = llama3_tokenizer()
    bos = tokenizer.bos_id
    for text in ("<|begin_of_text|>hello", "hello", "<|begin_of_text|><|begin_of_text|>hello"):
        ids = tokenizer.encode_spans([(text, Trust.TEMPLATE)])
        assert ids.count(bos or -1) == 1 and ids[0] == bos
    assert tokenizer.encode_spans([("hello", Trust.TEMPLATE)], ensure_bos=False)[0] != bos
    without = chatml_tokenizer()
    assert without.encode_spans([("hello", Trust.TEMPLATE)]) == without.encode("hello")


def test_completion_prompt_is_taken_as_given() -> None:
    tokenizer = llama3_tokenizer()
    text = "<|begin_of_text|>hello"
    both = tokenizer.encode(text, add_special=True, parse_special=True)
    assert both.count(tokenizer.bos_id or -1) == 2 and tokenizer.has_doubled_bos(both)
    assert tokenizer.encode(text, add_special=False, parse_special=True).count(tokenizer.bos_id or -1) == 1
    plain = tokenizer.encode(text, add_special=False)
    assert tokenizer.bos_id not in plain and tokenizer.decode(plain) == text


def test_lone_surrogates_from_json_do_not_crash() -> None:
    tokenizer = chatml_tokenizer()
    assert tokenizer.decode(tokenizer.encode("a\ud83d b")) == "a\ufffd b"
    assert tokenizer.decode(tokenizer.encode("\ud83c\udf36")) == "\U0001f336"


def test_long_text_is_not_encoded_to_its_end() -> None:
    tokenizer = chatml_tokenizer()
    text = "some words and more " * 50_000
    start = time.process_time()
    ids = tokenizer.encode(text, max_tokens=16)
    assert time.process_time() - start < 0.05
    assert len(ids) > 16
    assert ids[:16] == tokenizer.encode(text[:4000])[:16]
    assert tokenizer.encode("short", max_tokens=16) == tokenizer.encode("short")


def test_fingerprint_sees_another_pre_tokenizer_or_normalizer() -> None:
    prints = {
        Tokenizer(train_byte_level(pre)).fingerprint() for pre in ("gpt-2", "qwen2", "llama-bpe", "smollm", "olmo")
    }
    assert len(prints) == 5
    assert chatml_tokenizer().fingerprint() == chatml_tokenizer().fingerprint()


def _folder(path: Path, **config: object) -> Path:
    rust = train_byte_level("llama-bpe", LLAMA3_CONTROL)
    (path / "tokenizer.json").write_text(rust.to_str())
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_model_folder_gives_ids_flags_templates_and_ends(tmp_path: Path) -> None:
    _folder(
        tmp_path,
        bos_token={"content": "<|begin_of_text|>", "special": True},
        eos_token="<|end_of_text|>",
        add_bos_token=True,
        chat_template=[{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}],
    )
    rust = train_byte_level("llama-bpe", LLAMA3_CONTROL)
    eot = rust.token_to_id("<|eot_id|>")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [eot]}))
    tokenizer = Tokenizer.from_file(tmp_path)
    assert tokenizer.bos_id == rust.token_to_id("<|begin_of_text|>")
    assert tokenizer.eos_ids == (rust.token_to_id("<|end_of_text|>"), eot)
    assert tokenizer.chat_templates == {"default": "A", "tool_use": "B"}
    for line in LINES:
        assert tokenizer.encode(line)[1:] == rust.encode(line, add_special_tokens=False).ids
        assert tokenizer.encode(line)[0] == tokenizer.bos_id
    (tmp_path / "chat_template.jinja").write_text("C")
    assert Tokenizer.from_file(tmp_path / "tokenizer.json").chat_templates["default"] == "C"


def test_flag_against_the_post_processor_wins(tmp_path: Path) -> None:
    rust = train_byte_level("gpt-2", ("<s>", "</s>"))
    bos, eos = rust.token_to_id("<s>"), rust.token_to_id("</s>")
    rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    (tmp_path / "tokenizer.json").write_text(rust.to_str())
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False, "add_eos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ids = Tokenizer.from_file(tmp_path).encode("a")
    assert ids[0] != bos and ids[-1] == eos
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    assert Tokenizer.from_file(tmp_path).encode("a")[0] == bos


def test_added_tokens_known_only_beside_the_file(tmp_path: Path) -> None:
    _folder(tmp_path)
    size = train_byte_level("llama-bpe", LLAMA3_CONTROL).get_vocab_size()
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<extra>": size}))
    tokenizer = Tokenizer.from_file(tmp_path)
    assert tokenizer.encode("x<extra>y", add_special=False)[1] == size
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<extra>": 5}))
    with pytest.raises(ModelError, match="<extra>"):
        Tokenizer.from_file(tmp_path)


def test_missing_or_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        Tokenizer.from_file(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json is not"):
        Tokenizer.from_file(tmp_path)
    _folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ModelError, match="tokenizer_config"):
        Tokenizer.from_file(tmp_path)


def test_padding_and_truncation_stored_in_the_file_are_off(tmp_path: Path) -> None:
    rust = train_byte_level("gpt-2", ("<pad>",))
    stored = type(rust).from_str(rust.to_str())
    stored.enable_truncation(4)
    stored.enable_padding(length=32)
    stored.add_tokens([AddedToken("<more>")])
    (tmp_path / "tokenizer.json").write_text(stored.to_str())
    assert len(Tokenizer.from_file(tmp_path).encode("one two three four five six")) > 4
