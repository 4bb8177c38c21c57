"""From options to a running `PoolingCore`: platform, weights, modules, and one real vector. Phases are timed by name."""

from __future__ import annotations

import logging
import os

from octavo.engine.config import EngineConfig
from octavo.engine.errors import EngineDeadError
from octavo.engine.messages import AddItems, EngineInfo, PoolingInfo
from octavo.engine.phases import Phases
from octavo.engine.pooling.core import Embed, PoolingCore
from octavo.engine.pooling.modules import Pipeline
from octavo.engine.pooling.opened import Opened, open_encoder
from octavo.engine.pooling.runner import EmbeddingRunner

log = logging.getLogger("octavo.engine")


def build_pooling_core(config: EngineConfig) -> PoolingCore:
    """Everything up to the first vector. ModelError, ConfigError or PlatformError say what is wrong."""
    phases = Phases()
    opened = open_encoder(config, needs_tokenizer=False, mark=phases.mark)
    opened.files.checkpoint.close()
    info = _info(opened, phases.seconds)
    tasks = {"embed": Embed(EmbeddingRunner.of(opened), normalizes=opened.pipeline.normalizes)}
    core = PoolingCore(tasks, info, max_batch_tokens=opened.max_batch_tokens, max_num_seqs=opened.max_num_seqs)
    phases.mark("build")
    prove(core)
    phases.mark("first_vector")
    log.info(
        "%s in %s, texts of %d tokens, vectors of %d; platform %s, %d threads%s",
        *(info.architecture, "/".join(info.weight_formats), info.max_model_len, opened.pipeline.width),
        *(info.platform, info.num_threads),
        f", CPU levels {', '.join(info.levels)}" if info.levels else "",
    )
    return core


def prove(core: PoolingCore) -> None:
    """One real text of one token through everything: what `ready` means. EngineDeadError if nothing comes of it."""
    core.add(AddItems("first-vector", next(iter(core.tasks)), 0, bytes(4), (1).to_bytes(4, "little")))
    outputs = core.step()
    if len(outputs) != 1 or outputs[0].error:
        raise EngineDeadError(f"no vector in the first step: {outputs[0].error if outputs else 'nothing'}")


def _info(opened: Opened, seconds: dict[str, float]) -> EngineInfo:
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
        pooling=_pooling(opened.pipeline, ["embed"]),
    )


def _pooling(pipeline: Pipeline, tasks: list[str]) -> PoolingInfo:
    return PoolingInfo(
        tasks,
        pipeline.width,
        pipeline.max_tokens,
        pipeline.lowers_case,
        dict(pipeline.prompts),
        pipeline.default_prompt,
        pipeline.dims,
        pipeline.truncate_dim,
        pipeline.similarity,
        list(pipeline.modes),
        pipeline.normalizes,
    )
