"""The module list of a sentence-transformers folder: what becomes of an encoder's hidden states, and what of texts before it.

`modules.json` names modules in order: Transformer, Pooling, then any of Dense, Normalize, Dropout (nothing at inference); each
has its folder. `sentence_bert_config.json` bounds texts, `config_sentence_transformers.json` has prompts and the similarity.
Every key is read or known to change nothing; a module that is not served is refused by its name. Where two files disagree, which
one counts is logged. A folder without `modules.json` is pooled by the mean and not normalised, which is logged too.
A cross-encoder's folder has the Transformer alone, and says what its scores become. Sources: Reimers & Gurevych 2019; the files
that sentence-transformers 2 to 6 write.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from octavo.engine.errors import ModelError
from octavo.engine.loading.config import read_json, read_json_list
from octavo.engine.models.reader import Description
from octavo.engine.pooling.outputs import OUTPUTS, Joined, Late, Output, Splade
from octavo.platforms.types import Activation

if TYPE_CHECKING:
    from octavo.engine.pooling.questions import Question

log = logging.getLogger("octavo.engine")

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan", "maxsim", "meanmaxsim"]

#: older spelling of modes, in the order in which several are joined
_FLAGS: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS: dict[str, Activation] = {
    "Tanh": "tanh",
    "Identity": "none",
    "ReLU": "relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
}
TEXT_CONFIGS = (
    *("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json"),
    *("sentence_xlm-roberta_config.json", "sentence_camembert_config.json", "sentence_albert_config.json"),
)
_PACKAGE = "sentence_transformers."
_ELSEWHERE = {"pylate.models.Dense.Dense": "Dense"}  # of others, with the same files
#: keys of PyLate's config_sentence_transformers.json
_PYLATE = (
    *("model_type", "query_prefix", "document_prefix", "query_length", "document_length"),
    *("attend_to_expansion_tokens", "do_query_expansion", "skiplist_words"),
)
_NO_LIMIT = 1 << 24  # tokenizers without a limit name a number beyond all texts


@dataclass(frozen=True)
class Dense:
    """One linear layer behind the pooling. `folder` holds its tensors."""

    folder: Path
    num_in: int
    num_out: int
    has_bias: bool
    activation: Activation


@dataclass(frozen=True)
class Pipeline:
    """What `read_pipeline` found. `modes` are joined in order; `dense` and `normalize` follow; widths in elements.

    `max_tokens`: of a text with its special tokens. `dims`: to which vectors may be cut; None: not said. `notes`: what was
    assumed, or decided where files disagree.
    """

    modes: tuple[PoolingMode, ...] = ("mean",)
    includes_prompt: bool = True
    dense: tuple[Dense, ...] = ()
    normalizes: bool = False
    width: int = 0
    max_tokens: int = 0
    lowers_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: Similarity = "cosine"
    dims: tuple[int, ...] | None = None
    truncate_dim: int | None = None
    activation: Activation = "none"  # of a cross-encoder's scores
    question: Question | None = None  # how a reranker made of a decoder is asked
    splade: Splade | None = None
    late: Late | None = None
    joined: Joined | None = None
    notes: tuple[str, ...] = ()

    @property
    def weighs_tokens(self) -> bool:
        """Whether sparse vectors are weights of a text's own tokens."""
        return self.joined is not None and self.joined.sparse is not None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What a text becomes, the usual one first."""
        has_sparse = self.splade is not None or self.weighs_tokens
        has = {"dense": bool(self.modes), "sparse": has_sparse, "multi_vector": self.late is not None}
        return tuple(name for name in OUTPUTS if has[name])


def transformer_folder(folder: Path) -> Path:
    """Where the encoder itself lies: the folder, or the one that `modules.json` names first."""
    if not (folder / "modules.json").is_file():
        return folder
    listed = listed_modules(folder)
    if not listed or listed[0][0] not in ("Transformer", "MLMTransformer"):
        first = listed[0][0] if listed else "nothing"
        raise ModelError(
            f"{folder / 'modules.json'} begins with {first}; models that begin with Transformer are served"
        )
    return listed[0][1]


def read_pipeline(
    folder: Path, *, config: Mapping[str, Any], hidden: int, max_tokens: int, tokenizer_config: Mapping[str, Any]
) -> Pipeline:
    """The modules behind an encoder of width `hidden`, which takes `max_tokens` tokens. `config`: its config.json."""
    return Reader(folder, hidden, max_tokens).read(config, tokenizer_config)


def read_classifier(
    folder: Path,
    *,
    config: Mapping[str, Any],
    num_labels: int,
    max_tokens: int,
    tokenizer_config: Mapping[str, Any],
    question: Question | None = None,
) -> Pipeline:
    """The same of a model with a head that gives `num_labels` scores, the vector's values; behind it no module is served but
    LogitScore, which `question` has been read of."""
    return Reader(folder, num_labels, max_tokens).read_classifier(config, tokenizer_config, question)


class Reader:
    """Reads one folder. `notes` are logged at the end."""

    def __init__(self, folder: Path, hidden: int, max_tokens: int) -> None:
        self.folder = folder
        self.hidden = hidden
        self.limit = max_tokens
        self.notes: list[str] = []

    def read(self, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> Pipeline:
        found: dict[str, Any] = {"width": self.hidden}
        if (self.folder / "modules.json").is_file():
            for kind, at in listed_modules(self.folder):
                found |= self.module(kind, at, found)
            if "modes" not in found:
                raise ModelError(
                    f"{self.folder / 'modules.json'} has no Pooling; models that give one vector per text have one"
                )
        else:
            self.notes.append(f"{self.folder} has no modules.json: vectors are the mean of all tokens, not normalised")
        found |= self.text(transformer_folder(self.folder), tokenizer_config)
        found |= self.usage(config)
        self.log_notes()
        return Pipeline(**found, notes=tuple(self.notes))

    def log_notes(self) -> None:
        """Says what was assumed."""
        for note in self.notes:
            log.warning("%s", note)

    def read_classifier(
        self, config: Mapping[str, Any], tokenizer_config: Mapping[str, Any], question: Question | None
    ) -> Pipeline:
        is_generator = question is not None and bool(question.rows)
        if (self.folder / "modules.json").is_file():
            for kind, at in listed_modules(self.folder)[2 if is_generator else 1 :]:
                raise ModelError(
                    f"{self.folder / 'modules.json'}: {kind} at {at.name} is not served behind scores; Transformer alone is"
                )
        how = ("text-generation", "causal_logits") if is_generator else ("sequence-classification", "scores")
        found = self.text(transformer_folder(self.folder), tokenizer_config, *how)
        found["question"] = question
        self.notes += question.notes if question is not None else ()
        found |= self.usage(config, "CrossEncoder")
        found["activation"] = self.activation(config, "sigmoid" if self.hidden == 1 else "none")
        self.log_notes()
        return Pipeline(modes=(), width=self.hidden, **found, notes=tuple(self.notes))

    def activation(self, config: Mapping[str, Any], default: Activation) -> Activation:
        """What a cross-encoder's scores become: where sentence-transformers 6, 4 and 3 write it, in that order."""
        file = self.folder / "config_sentence_transformers.json"
        own = config.get("sentence_transformers")
        for where, name in (
            (f"{file}: activation_fn", read_json(file, is_optional=True).get("activation_fn")),
            (
                "config.json: sentence_transformers.activation_fn",
                own.get("activation_fn") if isinstance(own, dict) else None,
            ),
            ("config.json: sbert_ce_default_activation_function", config.get("sbert_ce_default_activation_function")),
        ):
            if name is not None:
                found = _activation(name)
                if found is None:
                    self.notes.append(
                        f"{where} is {name!r}, which is not served: scores become what they do by default"
                    )
                return found or default
        return default

    def module(self, kind: str, at: Path, before: Mapping[str, Any]) -> dict[str, Any]:
        """What one module adds to what those before it gave."""
        if kind == "Transformer":
            if before.keys() != {"width"}:
                raise ModelError(f"{self.folder / 'modules.json'} has Transformer behind other modules; it comes first")
            return {"dense": ()}
        if kind == "Pooling" and "modes" not in before:
            return self.pooling(at)
        if kind == "Dropout" and "modes" in before:
            return {}
        if kind == "Dense" and "modes" in before and not before.get("normalizes"):
            dense = self.dense(at, before["width"])
            return {"dense": (*before["dense"], dense), "width": dense.num_out}
        if kind == "Normalize" and "modes" in before:
            return {"normalizes": True}
        raise ModelError(
            f"{self.folder / 'modules.json'}: {kind} at {at.name} is not served there; served are Transformer, Pooling, and "
            "then Dense, Normalize and Dropout, with Normalize last"
        )

    def pooling(self, at: Path) -> dict[str, Any]:
        """`1_Pooling/config.json`."""
        cfg = description(at / "config.json")
        width = cfg.whole("embedding_dimension", cfg.whole("word_embedding_dimension", self.hidden))
        if width != self.hidden:
            raise cfg.bad("word_embedding_dimension", width, f"the encoder's width, {self.hidden}")
        flagged = tuple(mode for key, mode in _FLAGS.items() if cfg.flag(key, False))
        given = cfg.get("pooling_mode")
        listed = given if isinstance(given, list) else [given]
        if given is not None and not (listed and set(listed) <= set(get_args(PoolingMode))):
            raise cfg.bad("pooling_mode", given, "one or several of " + ", ".join(get_args(PoolingMode)))
        modes = flagged if given is None else tuple(cast("list[PoolingMode]", listed))
        if given is not None and flagged and set(flagged) != set(modes):
            self.notes.append(f"{cfg.where}: pooling_mode {given} counts, not the flags of {', '.join(flagged)}")
        if not modes:
            self.notes.append(f"{cfg.where} asks for no mode: vectors are the mean of all tokens")
        includes_prompt = cfg.flag("include_prompt", True)
        cfg.finish()
        modes = modes or ("mean",)
        return {"modes": modes, "includes_prompt": includes_prompt, "width": len(modes) * self.hidden}

    def dense(self, at: Path, num_in: int, over: str = "sentence_embedding") -> Dense:
        """`2_Dense/config.json`."""
        cfg = description(at / "config.json")
        if cfg.whole("in_features") != num_in:
            raise cfg.bad("in_features", cfg.get("in_features"), f"the width of what comes before, {num_in}")
        name = cfg.text("activation_function", "torch.nn.modules.activation.Tanh")
        activation = _activation(name)
        if activation is None:
            raise cfg.bad("activation_function", name, "torch.nn's " + ", ".join(_ACTIVATIONS))
        for key in ("module_input_name", "module_output_name"):
            cfg.expect(key, over)
        cfg.expect("use_residual", False)
        dense = Dense(at, num_in, cfg.whole("out_features"), cfg.flag("bias", True), activation)
        cfg.finish()
        return dense

    def text(
        self,
        at: Path,
        tokenizer_config: Mapping[str, Any],
        task: str = "feature-extraction",
        output: str = "token_embeddings",
        more: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """How texts become tokens: `sentence_bert_config.json` beside the encoder."""
        file = next((at / name for name in TEXT_CONFIGS if (at / name).is_file()), None)
        if file is None:
            return {"max_tokens": self.bounded(None, "", tokenizer_config)}
        cfg = description(file)
        most = None if cfg.get("max_seq_length") is None else cfg.whole("max_seq_length")
        if most is not None and most < 1:
            raise cfg.bad("max_seq_length", most, "at least 1")
        cfg.expect("transformer_task", task)
        cfg.expect("module_output_name", output)
        cfg.skip(
            "modality_config", "unpad_inputs", "processing_kwargs"
        )  # of other inputs than texts, and of its own batches
        cfg.skip(
            "model_args", "config_args", "model_kwargs", "config_kwargs"
        )  # how transformers is to load what is here
        cfg.skip("tokenizer_args", "processor_kwargs")  # which the tokenizer's own files say as well
        lowers_case = cfg.flag("do_lower_case", False)
        if more is not None:  # of models that tell queries from documents
            more |= {key: cfg.get(key) for key in ("query_length", "document_length", "query_expansion")}
        cfg.finish()
        return {
            "max_tokens": self.bounded(most, f"{file}: max_seq_length", tokenizer_config),
            "lowers_case": lowers_case,
        }

    def bounded(self, most: int | None, where: str, tokenizer_config: Mapping[str, Any]) -> int:
        """Tokens of a text at most: the folder's limit, or the tokenizer's; never more than the encoder takes."""
        if most is None:
            own = tokenizer_config.get("model_max_length")
            most = int(own) if isinstance(own, (int, float)) and 0 < own < _NO_LIMIT else self.limit
        elif most > self.limit:
            self.notes.append(f"{where} is {most}; the encoder takes {self.limit} tokens, which counts")
        return min(most, self.limit)

    def usage(
        self,
        config: Mapping[str, Any],
        model_type: str = "SentenceTransformer",
        similarity: Similarity = "cosine",
        more: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Prompts, similarity and shorter vectors: `config_sentence_transformers.json` and config.json."""
        file = self.folder / "config_sentence_transformers.json"
        cfg = Description(read_json(file, is_optional=True), str(file))
        cfg.skip("__version__")
        cfg.expect("model_type", model_type, *(() if more is None else ("ColBERT",)))
        if more is not None:
            more |= {key: cfg.get(key) for key in _PYLATE}
        if model_type == "CrossEncoder":
            cfg.skip("activation_fn", "keep_in_fp32_modules")  # read apart; scores are float32 here
        prompts = cfg.get("prompts", {})
        if not isinstance(prompts, dict) or not all(isinstance(text, (str, type(None))) for text in prompts.values()):
            raise cfg.bad("prompts", prompts, "texts by name")
        default = cfg.get("default_prompt_name")
        if default is not None and default not in prompts:
            raise cfg.bad("default_prompt_name", default, "one of " + (", ".join(prompts) or "no prompts"))
        name = cfg.text("similarity_fn_name", similarity)
        if name.lower() not in get_args(Similarity):
            raise cfg.bad("similarity_fn_name", name, "one of " + ", ".join(get_args(Similarity)))
        cut = None if cfg.get("truncate_dim") is None else cfg.whole("truncate_dim")
        cfg.finish()
        return {
            "prompts": {name: text or "" for name, text in prompts.items()},
            "default_prompt": default,
            "similarity": name.lower(),
            "truncate_dim": cut,
            "dims": _dims(config),
        }


def _dims(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Widths that vectors may be cut to, () for any, None for a model that does not say that it was trained for it."""
    listed = config.get("matryoshka_dimensions")
    if isinstance(listed, list) and listed and all(isinstance(dim, int) for dim in listed):
        return tuple(listed)
    return () if config.get("is_matryoshka") is True else None


def _activation(name: object) -> Activation | None:
    """What a torch module is called here; None for others."""
    if not isinstance(name, str) or not name.startswith("torch.nn."):
        return None
    return _ACTIVATIONS.get(name.rpartition(".")[2])


def description(file: Path) -> Description:
    if not file.is_file():
        raise ModelError(f"{file} is missing; modules.json names its module")
    return Description(read_json(file), str(file))


def listed_modules(folder: Path) -> list[tuple[str, Path]]:
    """(class name, folder) of every module. ModelError for classes from elsewhere and for paths that leave the folder."""
    file = folder / "modules.json"
    found = []
    for entry in read_json_list(file):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("type", "path")):
            raise ModelError(f"{file}: an entry is {entry!r}; it must be an object with type and path")
        package, _, kind = entry["type"].rpartition(".")
        if entry["type"] in _ELSEWHERE:
            kind = _ELSEWHERE[entry["type"]]
        elif not f"{package}.".startswith(_PACKAGE):
            raise ModelError(f"{file}: module {entry['type']} is not served: it is code of its own, which is never run")
        path = PurePosixPath(entry["path"])
        if path.is_absolute() or ".." in path.parts:
            raise ModelError(f"{file}: path {entry['path']!r} leaves the model's folder")
        found.append((kind, folder / path))
    return found
