"""Which family serves which architecture name: one row per Hugging Face name and one per GGUF name.

Rows name a module and the `Family` in it; the module is imported when its row is asked for. To add a model: one file,
one or two rows here, one line in `tests/golden/tiny.py`. Invariant: a row's name is the file's own spelling,
verbatim.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import ModelError
from octavo.engine.models.head_kinds import KINDS

if TYPE_CHECKING:
    from octavo.engine.models.family import EncoderFamily, Family

#: `architectures[0]` of config.json -> (module, name in it)
HF: dict[str, tuple[str, str]] = {
    "LlamaForCausalLM": ("llama", "FAMILY"),
    "MistralForCausalLM": ("llama", "MISTRAL"),
    "SmolLM3ForCausalLM": ("llama", "SMOLLM3"),
    "Qwen2ForCausalLM": ("qwen", "QWEN2"),
    "Qwen3ForCausalLM": ("qwen", "QWEN3"),
    "GemmaForCausalLM": ("gemma", "GEMMA"),
    "Gemma2ForCausalLM": ("gemma", "GEMMA2"),
    "Gemma3ForCausalLM": ("gemma", "GEMMA3"),
    "Phi3ForCausalLM": ("phi3", "FAMILY"),
    "Olmo2ForCausalLM": ("olmo2", "FAMILY"),
    "GraniteForCausalLM": ("granite", "FAMILY"),
    "Glm4ForCausalLM": ("glm4", "FAMILY"),
    "Starcoder2ForCausalLM": ("starcoder2", "FAMILY"),
    "GPT2LMHeadModel": ("gpt2", "FAMILY"),
}


def _with_heads(stem: str, module: str, name: str) -> dict[str, tuple[str, str]]:
    """The rows of a family's checkpoints that have a head."""
    return {stem + ending: (module, name) for ending in KINDS}


#: the same of encoders: models that give vectors, scores or labels, not tokens
ENCODERS: dict[str, tuple[str, str]] = {
    "BertModel": ("bert", "BERT"),
    **_with_heads("Bert", "bert", "BERT"),
    "HF_ColBERT": ("bert", "BERT"),
    "RobertaModel": ("bert", "ROBERTA"),
    **_with_heads("Roberta", "bert", "ROBERTA"),
    "XLMRobertaModel": ("bert", "ROBERTA"),
    **_with_heads("XLMRoberta", "bert", "ROBERTA"),
    "DistilBertModel": ("bert", "DISTILBERT"),
    **_with_heads("DistilBert", "bert", "DISTILBERT"),
    "ModernBertModel": ("modernbert", "MODERNBERT"),
    **_with_heads("ModernBert", "modernbert", "MODERNBERT"),
    "NomicBertModel": ("nomic_bert", "NOMIC_BERT"),
    "MPNetModel": ("mpnet", "MPNET"),
    "MPNetForMaskedLM": ("mpnet", "MPNET"),
    "T5EncoderModel": ("t5", "T5"),
    "DebertaV2Model": ("deberta", "DEBERTA"),
    **_with_heads("DebertaV2", "deberta", "DEBERTA"),
    "JinaBertModel": ("jina_bert", "JINA_BERT"),
    "JinaBertForMaskedLM": ("jina_bert", "JINA_BERT"),
    "NewModel": ("gte", "NEW"),
    "NewForMaskedLM": ("gte", "NEW"),
    "GteModel": ("gte", "GTE"),
    "GteForMaskedLM": ("gte", "GTE"),
}

#: the same of decoders saved without their head: embedders that were made of one
BARE: dict[str, tuple[str, str]] = {
    "LlamaModel": ("llama", "FAMILY"),
    "MistralModel": ("llama", "MISTRAL"),
    "Qwen2Model": ("qwen", "QWEN2"),
    "Qwen3Model": ("qwen", "QWEN3"),
    "GemmaModel": ("gemma", "GEMMA"),
    "Gemma3TextModel": ("gemma", "GEMMA3_TEXT"),
}

#: the same of decoders with a linear layer over the last token of a text
SCORED: dict[str, tuple[str, str]] = {
    "LlamaForSequenceClassification": ("llama", "FAMILY"),
    "MistralForSequenceClassification": ("llama", "MISTRAL"),
    "Qwen2ForSequenceClassification": ("qwen", "QWEN2"),
    "Qwen3ForSequenceClassification": ("qwen", "QWEN3"),
    "GemmaForSequenceClassification": ("gemma", "GEMMA"),
}

#: embedders made of decoders whose attention caps its scores, which packed texts are not attended to with
CAPPED = ("Gemma2Model",)

#: rerankers whose layers are code of their own, which is never run
LAYERWISE = ("LayerWiseMiniCPMForCausalLM", "CostWiseGemmaForCausalLM")

#: `general.architecture` of GGUF metadata -> (module, name in it)
GGUF: dict[str, tuple[str, str]] = {
    "llama": ("llama", "FAMILY"),
    "smollm3": ("llama", "SMOLLM3"),
    "qwen2": ("qwen", "QWEN2"),
    "qwen3": ("qwen", "QWEN3"),
    "gemma": ("gemma", "GEMMA"),
    "gemma2": ("gemma", "GEMMA2"),
    "gemma3": ("gemma", "GEMMA3"),
    "phi3": ("phi3", "FAMILY"),
    "olmo2": ("olmo2", "FAMILY"),
    "granite": ("granite", "FAMILY"),
    "glm4": ("glm4", "FAMILY"),
    "starcoder2": ("starcoder2", "FAMILY"),
    "gpt2": ("gpt2", "FAMILY"),
}

#: the same of encoders
GGUF_ENCODERS: dict[str, tuple[str, str]] = {
    "bert": ("bert", "BERT"),
    "nomic-bert": ("nomic_bert", "NOMIC_BERT"),
    "jina-bert-v2": ("jina_bert", "JINA_BERT"),
    "modern-bert": ("modernbert", "MODERNBERT"),
}


def hf_family(architecture: str, where: str) -> Family:
    """The family of a Hugging Face architecture name. ModelError listing what is known."""
    if architecture in ENCODERS:
        ranks = architecture.endswith(("ForSequenceClassification", "ForTokenClassification"))
        gives, use = ("scores", "octavo.Reranker or octavo.Classifier") if ranks else ("vectors", "octavo.Embedder")
        raise ModelError(f"{where}: {architecture} is an encoder: it gives {gives}, not tokens; use {use}")
    if architecture in BARE:
        raise ModelError(f"{where}: {architecture} is a decoder without a head: it gives vectors; use octavo.Embedder")
    if architecture in SCORED:
        raise ModelError(f"{where}: {architecture} gives scores, not tokens; use octavo.Reranker or octavo.Classifier")
    family: Family = _family(HF, architecture, where)
    return family


def is_decoder(architecture: str) -> bool:
    """Whether a Hugging Face architecture name is a decoder's, with its head, without, or with one that classifies."""
    return architecture in HF or architecture in BARE or architecture in SCORED


def bare_family(architecture: str, where: str) -> Family:
    """The family of a decoder that gives vectors or scores."""
    family: Family = _family({**BARE, **SCORED, **HF}, architecture, where)
    return family


def gguf_family(architecture: str, where: str) -> Family:
    """The family of a GGUF architecture name. ModelError listing what is known."""
    if architecture in GGUF_ENCODERS:
        raise ModelError(f"{where}: {architecture} is an encoder: it gives vectors, not tokens; use octavo.Embedder")
    family: Family = _family(GGUF, architecture, where)
    return family


def encoder_family(architecture: str, where: str) -> EncoderFamily:
    """The family of an encoder's architecture name. ModelError listing what is known."""
    family: EncoderFamily = _family(ENCODERS, architecture, where)
    return family


def gguf_encoder_family(architecture: str, where: str) -> EncoderFamily:
    """The family of a GGUF architecture name of encoders. ModelError listing what is known, decoders included."""
    family: EncoderFamily = _family({**GGUF_ENCODERS, **GGUF}, architecture, where)
    return family


def _family(rows: dict[str, tuple[str, str]], architecture: str, where: str) -> Any:
    row = rows.get(architecture)
    if row is None:
        by_lower = {name.lower(): name for name in rows}
        from difflib import get_close_matches  # only for this message

        near = [by_lower[name] for name in get_close_matches(architecture.lower(), by_lower, n=1)]
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ModelError(f"{where}: architecture {architecture!r} is not served; served are {', '.join(rows)}{hint}")
    module = import_module(f"octavo.engine.models.{row[0]}")
    return getattr(module, row[1])
