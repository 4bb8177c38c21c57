"""From options to a running `PoolingCore`: platform, weights, modules or head, and one real item. Phases are timed by name."""

from __future__ import annotations

import logging
import os
from typing import Any

from octavo.engine.config import EngineConfig
from octavo.engine.errors import EngineDeadError
from octavo.engine.loading.config import open_model
from octavo.engine.messages import AddItems, EngineInfo, PoolingInfo
from octavo.engine.phases import Phases
from octavo.engine.pooling.core import Embed, Encode, PoolingCore, Scores, Task, TokenVectors
from octavo.engine.pooling.head_runner import HeadRunner
from octavo.engine.pooling.opened import Opened, open_encoder
from octavo.engine.pooling.outputs import Output
from octavo.engine.pooling.runner import EmbeddingRunner
from octavo.engine.pooling.token_runner import TokenRunner

log = logging.getLogger("octavo.engine")


def build_pooling_core(config: EngineConfig) -> PoolingCore:
    """Everything up to the first vector or score. ModelError, ConfigError or PlatformError say what is wrong."""
    phases = Phases()
    opened = open_encoder(config, needs_tokenizer=False, mark=phases.mark, with_head=None)
    opened.files.checkpoint.close()
    tasks, pooling = _scores(opened, config) if opened.gives_scores else _vectors(opened)
    info = _info(opened, phases.seconds, pooling)
    core = PoolingCore(tasks, info, max_batch_tokens=opened.shared_tokens, max_num_seqs=opened.max_num_seqs)
    phases.mark("build")
    prove(core)
    phases.mark("first_item")
    log.info(
        "%s in %s, texts of %d tokens, %s; platform %s, %d threads%s",
        *(info.architecture, "/".join(info.weight_formats), info.max_model_len),
        f"scores of {', '.join(pooling.labels[:8])}" if pooling.labels else f"vectors of {pooling.width}",
        *(info.platform, info.num_threads),
        f", CPU levels {', '.join(info.levels)}" if info.levels else "",
    )
    return core


def prove(core: PoolingCore) -> None:
    """One real text of one token through everything: what `ready` means. EngineDeadError if nothing comes of it."""
    core.add(AddItems("first-item", next(iter(core.tasks)), 0, bytes(4), (1).to_bytes(4, "little")))
    outputs = core.step()
    if len(outputs) != 1 or outputs[0].error:
        raise EngineDeadError(f"nothing came of the first step: {outputs[0].error if outputs else 'nothing'}")


def _info(opened: Opened, seconds: dict[str, float], pooling: PoolingInfo) -> EngineInfo:
    platform = opened.platform
    return EngineInfo(
        model=opened.name,
        architecture=opened.files.architecture,
        vocab_size=opened.encoder.spec.vocab,
        max_model_len=opened.pipeline.max_tokens,
        num_blocks=0,
        block_tokens=0,
        eos_ids=[],
        weight_formats=opened.encoder.formats(),
        kv_dtype="",
        platform=platform.name,
        levels=list(platform.levels),
        num_threads=platform.num_threads,
        weights_bytes=opened.weights_bytes,
        load_s=seconds,
        epoch=int.from_bytes(os.urandom(8), "little") >> 1,
        pooling=pooling,
    )


def _vectors(opened: Opened) -> tuple[dict[str, Task], PoolingInfo]:
    """Of a model that gives vectors."""
    pipeline, outputs = opened.pipeline, opened.pipeline.outputs
    tasks: dict[str, Task] = {}
    vector_width = 0
    if "dense" in outputs:
        tasks["embed"] = Embed(EmbeddingRunner.of(opened), normalizes=pipeline.normalizes)
    if outputs != ("dense",):
        runner = TokenRunner(opened)
        vector_width = runner.vector_width
        named: dict[Output, str] = {"sparse": "sparse", "multi_vector": "token_embed"}
        tasks |= {task: Encode(runner, (name,)) for name, task in named.items() if name in outputs}
        if len(outputs) > 1:
            tasks["encode"] = Encode(runner, outputs)
    if "dense" in outputs and "token_embed" not in tasks:
        states = HeadRunner(
            opened.platform,
            opened.encoder,
            lambda ops, x: x,
            max_tokens=opened.max_batch_tokens,
            max_seqs=opened.max_num_seqs,
        )
        tasks["token_embed"] = TokenVectors(states)
    return tasks, PoolingInfo(
        **_texts(opened, tasks),
        width=pipeline.width,
        dims=pipeline.dims,
        truncate_dim=pipeline.truncate_dim,
        similarity=pipeline.similarity,
        modes=list(pipeline.modes),
        normalizes=pipeline.normalizes,
        outputs=list(outputs),
        late=pipeline.late,
        vector_width=vector_width,
        weighs_tokens=pipeline.weighs_tokens,
    )


def _scores(opened: Opened, config: EngineConfig) -> tuple[dict[str, Task], PoolingInfo]:
    """Of a model with a head that classifies."""
    from octavo.engine.pooling.pairs import has_segments
    from octavo.engine.pooling.scores import ScoreRunner, activated, label_activation

    runner = ScoreRunner(opened)
    scores, labels = Scores(runner, activated), list(runner.spec.labels)
    names = ["token_classify"] if runner.spec.kind == "token" else ["classify"]
    if names == ["classify"] and len(labels) == 1:
        names = ["score", "classify"]
    tasks: dict[str, Task] = dict.fromkeys(names, scores)
    files = opened.files if config.tokenizer is None else open_model(config.tokenizer)
    question = opened.pipeline.question
    return tasks, PoolingInfo(
        **_texts(opened, tasks),
        width=len(labels),
        labels=labels,
        has_segments=has_segments(files.tokenizer_config),
        pair_activation=opened.pipeline.activation,
        pair_style="" if question is None else question.style,
        pair_options={} if question is None else dict(question.options),
        label_activation=label_activation(opened.files.config, len(labels)),
    )


def _texts(opened: Opened, tasks: dict[str, Task]) -> dict[str, Any]:
    """What both say of texts."""
    pipeline = opened.pipeline
    return {
        "tasks": list(tasks),
        "max_tokens": pipeline.max_tokens,
        "lowers_case": pipeline.lowers_case,
        "prompts": dict(pipeline.prompts),
        "default_prompt": pipeline.default_prompt,
    }
