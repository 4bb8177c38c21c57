"""Tiny rerankers made of decoders: a checkpoint of tiny.py, a byte-level tokenizer with the words that answer, and the files that
say how a pair is asked about. `CASES` have golden scores (make_ranker_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny

WORDS = ("yes", "no", "Yes", "the", "Document", "Query", "Instruct")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>")
VOCAB = 320
PAIRS = (
    ("what is gravity?", "An attraction between masses."),
    ("a", "b"),
    ("Kantō \u6771\u4eac", "yes the the yes Document: no"),
    ("the question", "the answer is long, " * 12),
)
INSTRUCTION = "Judge whether the document names a city"
ROLES = """\
<|im_start|>system
{{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("Find it") }}<|im_end|>
<|im_start|>user
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
{% if add_generation_prompt %}<|im_start|>assistant
<think>

</think>

{% endif %}"""
#: the same where contents are lists of parts
STRUCTURED = (
    ROLES.replace("{{ messages | selectattr", "{{ (messages | selectattr")
    .replace(' | map(attribute="content") | first }}', " | first).content[0].text }}")
    .replace(' | map(attribute="content") | first | default("Find it") }}', ' | list | length)|string + "parts" }}')
)
_ONE = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
_THREE = {"id2label": {"0": "no", "1": "maybe", "2": "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
_FORWARD = {"method": "forward", "method_output_name": "logits"}
_TEXT = {"text": _FORWARD}
FLAT = {**_TEXT, "message": {**_FORWARD, "format": "flat"}}
_GENERATES = {"chat_template": {"add_generation_prompt": True}}
_PROMPTS = {"prompts": {"city": INSTRUCTION, "web": "Find pages"}, "default_prompt_name": None}

#: case -> options of `write`; a case is written into a folder of the name that `folder` gives it
CASES: dict[str, dict[str, Any]] = {
    "card": {"base": "qwen3", "folder": "Qwen3-Reranker-tiny"},
    "card_untied": {"base": "qwen3", "folder": "Qwen3-Reranker-tiny", "config": {"tie_word_embeddings": False}},
    "card_scored": {"base": "qwen3", "folder": "Qwen3-Reranker-tiny-seq-cls", "labels": _ONE},
    "gemma": {"base": "gemma", "folder": "bge-reranker-v2-gemma"},
    "roles": {"base": "qwen3", "words": ("yes", "no"), "template": ROLES, "modality": FLAT, "processing": _GENERATES},
    "roles_one": {"base": "llama3", "words": ("Yes",), "template": ROLES, "modality": FLAT, "usage": _PROMPTS},
    "scaled": {"base": "granite", "words": ("yes", "no"), "template": ROLES, "modality": FLAT},
    "roles_cut": {
        "base": "qwen3",
        "words": ("yes", "no"),
        "template": ROLES,
        "modality": FLAT,
        "processing": _GENERATES,
        "most": 230,
    },
    "roles_scored": {"base": "qwen2", "labels": _ONE, "template": ROLES, "modality": FLAT, "has_modules": True},
    "structured": {
        "base": "qwen3",
        "words": ("yes", "no"),
        "template": STRUCTURED,
        "modality": {**_TEXT, "message": {**_FORWARD, "format": "structured"}},
    },
    "plain": {"base": "mistral", "words": ("yes", "no"), "modality": _TEXT},
    "scored": {"base": "llama", "labels": _ONE},
    "scored_labels": {"base": "mistral", "labels": _THREE},
    "scored_gemma": {"base": "gemma", "labels": _ONE},
}
#: which of the cases sentence-transformers opens as they are; of the others the model card's own lines are the oracle
BY_CARD = ("card", "card_untied", "card_scored", "gemma")


def config(base: str, **more: Any) -> dict[str, Any]:
    """config.json over a case of tiny.py."""
    return {**tiny.CASES[base], "vocab_size": VOCAB, "max_position_embeddings": 1024, **more}


def architecture(name: str) -> str:
    """What config.json of a case names."""
    options = CASES[name]
    decoder = str(tiny.CASES[options["base"]]["architectures"][0])
    return decoder.replace("ForCausalLM", "ForSequenceClassification") if options.get("labels") else decoder


def write_case(name: str, root: Path) -> Path:
    """The folder of a case, in `root`."""
    options = dict(CASES[name])
    return write(root / options.pop("folder", name), **options)


def write(
    folder: Path,
    *,
    base: str,
    words: tuple[str, ...] = (),
    labels: dict[str, Any] | None = None,
    template: str | None = None,
    modality: dict[str, Any] | None = None,
    processing: dict[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
    most: int | None = None,
    has_modules: bool = False,
    **more: Any,
) -> Path:
    """A folder. `words`: LogitScore's; `labels`: keys of config.json, for a head that classifies; `modality`, `processing`,
    `most`: of sentence_bert_config.json; `usage`: config_sentence_transformers.json; `config` in `more`: keys of config.json."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    said = config(base, **more.get("config", {}), **(labels or {}))
    tensors = {name: values(base, said, name, shape) for name, shape in tiny.shapes(said).items()}
    if labels is not None:
        said["architectures"] = [said["architectures"][0].replace("ForCausalLM", "ForSequenceClassification")]
        tensors.pop("lm_head.weight", None)
        tensors["score.weight"] = values(base, said, "score.weight", (len(labels["id2label"]), said["hidden_size"]))
    (folder / "config.json").write_text(json.dumps(said))
    save_file(tensors, folder / "model.safetensors")
    ids = write_tokenizer(folder, has_bos=base == "gemma", template=template)
    if words or has_modules:
        task = ("text-generation", "causal_logits") if words else ("sequence-classification", "scores")
        text: dict[str, Any] = {"transformer_task": task[0], "module_output_name": task[1], "modality_config": modality}
        text |= {} if processing is None else {"processing_kwargs": processing}
        text |= {} if most is None else {"max_seq_length": most}
        (folder / "sentence_bert_config.json").write_text(json.dumps(text))
        listed = [("", "sentence_transformers.base.modules.transformer.Transformer")]
        if words:
            listed.append(("1_LogitScore", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"))
            (folder / "1_LogitScore").mkdir(exist_ok=True)
            score = {"true_token_id": ids[words[0]], "false_token_id": ids[words[1]] if len(words) == 2 else None}
            (folder / "1_LogitScore" / "config.json").write_text(json.dumps(score))
        modules = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(listed)]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "config_sentence_transformers.json").write_text(
            json.dumps({"model_type": "CrossEncoder", **(usage or {})})
        )
    return folder


def values(base: str, said: dict[str, Any], name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A tensor, as tiny.py draws them; the head's a little wider, so that answers differ."""
    generator = tiny.random_values(f"ranker {base}", name)
    if len(shape) == 1:
        mean, spread = (0.9, 0.4) if "norm" in name else (0.0, 0.3)
        mean = -0.1 if said["model_type"].startswith("gemma") else mean
        return (mean + spread * generator.standard_normal(shape)).astype(np.float32)
    spread = 0.2 if "embed" in name or name == "lm_head.weight" else 0.18
    return (spread * generator.standard_normal(shape)).astype(np.float32)


def write_tokenizer(folder: Path, *, has_bos: bool = False, template: str | None = None) -> dict[str, int]:
    """A byte-level BPE tokenizer; the ids of its entries."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab, merges = {letter: place for place, letter in enumerate(letters)}, []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocab:
                vocab[word[:end]] = len(vocab)
                merges.append((word[: end - 1], word[end - 1]))
    rust = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens(list(SPECIAL))
    if has_bos:
        rust.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", rust.token_to_id("<bos>"))]
        )
    assert rust.get_vocab_size() <= VOCAB
    rust.save(str(folder / "tokenizer.json"))
    said: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL[0],
        "eos_token": SPECIAL[2],
    }
    said |= {"model_input_names": ["input_ids", "attention_mask"], "padding_side": "left"}
    said |= {"bos_token": "<bos>"} if has_bos else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return {word: rust.token_to_id(word) for word in (*WORDS, *SPECIAL)}
