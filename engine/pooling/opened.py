"""An encoder opened on a platform, with the modules behind it: what `Embedder` and the engine process begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from octavo.engine.chosen import chosen_platform
from octavo.engine.config import EngineConfig, read_environment, weight_change
from octavo.engine.errors import ModelError
from octavo.engine.loading.config import ModelFiles, open_model
from octavo.engine.loading.source import Progress, resolve
from octavo.engine.memory import refuse_weights_without_room
from octavo.engine.models.change import least_bytes
from octavo.engine.models.head_kinds import kind_of
from octavo.engine.models.registry import CAPPED, is_decoder
from octavo.engine.models.text_encoder import TextEncoder
from octavo.engine.models.text_load import load_text_encoder
from octavo.engine.pooling import gguf
from octavo.engine.pooling.modules import Pipeline, read_classifier, read_pipeline, transformer_folder
from octavo.engine.pooling.outputs import Late
from octavo.engine.pooling.questions import Question, question_of
from octavo.engine.pooling.token_modules import gives_tokens, joined, needs_head, read_token_pipeline
from octavo.platforms.limits import read_limits
from octavo.platforms.ops import Weights
from octavo.platforms.platform import Platform

SHARED_TOKENS = 2048  # beyond, products of matrices gain nothing by more rows


@dataclass(frozen=True)
class Opened:
    """`folder` holds the modules. `files` are the encoder's own, still open: whoever opened it closes the checkpoint.
    `max_batch_tokens` and `max_num_seqs` bound a step, which holds at least one text of any length that is served; several texts
    share one up to `shared_tokens`, so that a model of long texts does not work on 32,768 tokens of short ones at once."""

    name: str
    folder: Path
    platform: Platform
    weights: Weights
    files: ModelFiles
    encoder: TextEncoder
    pipeline: Pipeline
    max_batch_tokens: int
    shared_tokens: int
    max_num_seqs: int

    @property
    def gives_scores(self) -> bool:
        """Whether its head classifies, rather than there being none or one that vectors are made with."""
        head = self.encoder.head
        return head is not None and head.spec.kind in ("sequence", "token")

    @property
    def weights_bytes(self) -> int:
        """As they run."""
        return self.files.checkpoint.num_bytes + self.encoder.grown_bytes


def open_encoder(
    config: EngineConfig,
    *,
    progress: Progress | None = None,
    needs_tokenizer: bool = True,
    mark: Callable[[str], None] = lambda phase: None,
    with_head: bool | None = False,
    is_dry: bool = False,
) -> Opened:
    """Limits, platform, weights, modules. `mark` hears of every phase that has ended. `with_head`: for the scores of a
    classification, not for vectors; None: for what the model is made for. `is_dry`: sizes only, the result cannot run.
    ModelError, ConfigError or PlatformError say what is wrong."""
    environment = read_environment()
    change, limits = weight_change(config, environment), read_limits()
    cache_dir = Path(config.cache_dir).expanduser() if config.cache_dir else environment.cache
    is_offline = config.is_offline or environment.is_offline
    source = resolve(config.model, cache_dir=cache_dir, is_offline=is_offline, progress=progress)
    folder = source.path if source.path.is_dir() else source.path.parent
    inner = folder if source.path.suffix == ".gguf" else transformer_folder(folder)
    files = open_model(source.path if inner == folder else inner, needs_tokenizer=needs_tokenizer)
    is_gguf = files.kind == "gguf"  # which says itself what a folder's other files say
    try:
        question = question_of(folder, files, config.tokenizer)
        gives_scores = gguf.gives_scores(files) if is_gguf else kind_of(files.architecture) in ("sequence", "token")
        if with_head is None:
            with_head = gives_scores or question is not None
        refuse_other_use(files, folder, question, with_head=with_head)
        mark("open")
        platform = chosen_platform(config, environment, limits)
        mark("platform")
        usable, free = platform.memory() or (limits.usable_memory, limits.free_memory)
        least = least_bytes(files.checkpoint, change.quantization)
        refuse_weights_without_room(least, usable_bytes=usable, free_bytes=free)
        weights = platform.weights(is_dry=is_dry)
        encoder = load_text_encoder(
            files.checkpoint,
            weights,
            config=files.config,
            max_len=config.max_model_len,
            expand=change.is_expanding,
            quantize=change.quantization,
            with_head=with_head or (not is_gguf and needs_head(folder, files.architecture)),
            rows=() if question is None else question.rows,
        )
        pipeline = _pipeline(folder, files, encoder, question, with_head=with_head)
        mark("weights")
    except BaseException:
        files.checkpoint.close()
        raise
    return Opened(
        source.name,
        folder,
        platform,
        weights,
        files,
        encoder,
        pipeline,
        max(config.max_batch_tokens, pipeline.max_tokens),
        max(config.max_batch_tokens, min(pipeline.max_tokens, SHARED_TOKENS)),
        config.max_num_seqs,
    )


def _pipeline(
    folder: Path, files: ModelFiles, encoder: TextEncoder, question: Question | None, *, with_head: bool
) -> Pipeline:
    """What the folder says of scores, of vectors of tokens, or of vectors of texts."""
    said: dict[str, Any] = {
        "config": files.config,
        "max_tokens": encoder.spec.max_positions,
        "tokenizer_config": files.tokenizer_config,
    }
    width = 0 if encoder.head is None else encoder.head.out.num_out
    if files.kind == "gguf":
        spec = encoder.spec
        if with_head:
            return gguf.read_gguf_scores(width, spec.max_positions)
        return gguf.read_gguf(files, hidden=spec.hidden, max_tokens=spec.max_positions)
    if with_head:
        is_compared = question is not None and bool(question.rows)
        return read_classifier(folder, num_labels=1 if is_compared else width, question=question, **said)
    if gives_tokens(folder, files.architecture):
        spec = encoder.spec
        return read_token_pipeline(folder, hidden=spec.hidden, vocab=spec.vocab, head_width=width, **said)
    pipeline, beside = read_pipeline(folder, hidden=encoder.spec.hidden, **said), joined(folder)
    if beside is None:
        return pipeline
    late = None if beside.multi_vector is None else Late(skips_first=True)
    return replace(pipeline, joined=beside, late=late)


def refuse_other_use(files: ModelFiles, folder: Path, question: Question | None, *, with_head: bool) -> None:
    """ModelError for a classifier that is opened for vectors, for an encoder of vectors that is opened for scores, and for a
    decoder whose folder does not say how vectors are made of its hidden states."""
    if files.kind == "gguf":
        gguf.refuse_other_use(files, with_head=with_head)
        return
    kind, name = kind_of(files.architecture), files.architecture
    is_classifier = kind in ("sequence", "token") or question is not None
    if is_classifier and not with_head:
        what = (
            "labels for every token: use octavo.Classifier"
            if kind == "token"
            else ("scores for texts and pairs of texts: use octavo.Reranker (octavo rerank) or octavo.Classifier")
        )
        raise ModelError(f"{files.path}: {name} gives {what}; its vectors were not trained to be compared")
    if name in CAPPED:
        raise ModelError(
            f"{files.path}: {name} caps the scores of its attention (so does bge-multilingual-gemma2); embedders that do are not "
            "served; EmbeddingGemma and bge-m3 are"
        )
    if with_head and not is_classifier and is_decoder(name):
        raise ModelError(
            f"{files.path}: {name} is a generator, and nothing says that it was trained to rank: rerankers have LogitScore in "
            "modules.json, or the name of Qwen3-Reranker or bge-reranker-v2-gemma as that of their folder. octavo.LLM runs "
            "generators"
        )
    if with_head and not is_classifier:
        raise ModelError(
            f"{files.path}: {name} has no head that classifies; encoders without one give vectors (octavo.Embedder, octavo "
            "embed), and octavo.LLM runs decoders"
        )
    if is_decoder(name) and not is_classifier and not (folder / "modules.json").is_file():
        raise ModelError(
            f"{files.path}: {name} is a decoder, and {folder} has no modules.json that says how its hidden states become "
            "vectors; embedders have one (and its folder 1_Pooling). octavo.LLM runs generators"
        )
