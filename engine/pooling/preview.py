"""The memory plan of a model that gives vectors or scores, from its headers; no weight is read, and nothing runs."""

from __future__ import annotations

from octavo.engine.config import EngineConfig
from octavo.engine.memory import VectorPlan
from octavo.engine.pooling.opened import Opened, open_encoder
from octavo.engine.pooling.runner import EmbeddingRunner
from octavo.engine.pooling.scores import ScoreRunner
from octavo.engine.pooling.token_runner import TokenRunner
from octavo.platforms.limits import read_limits


def preview_of_vectors(config: EngineConfig) -> VectorPlan:
    """What `octavo doctor MODEL` shows of such a model."""
    opened = open_encoder(config, needs_tokenizer=False, with_head=None, is_dry=True)
    try:
        return plan_of(opened, scratch_bytes(opened))
    finally:
        opened.files.checkpoint.close()
        opened.platform.close()


def scratch_bytes(opened: Opened) -> int:
    """Of the work area of a step."""
    if opened.gives_scores:
        return ScoreRunner(opened).scratch_bytes()
    runners = [TokenRunner(opened)] if opened.pipeline.outputs != ("dense",) else []
    found = sum(runner.scratch_bytes() for runner in runners)
    return found + (EmbeddingRunner.of(opened).scratch_bytes() if "dense" in opened.pipeline.outputs else 0)


def plan_of(opened: Opened, scratch: int) -> VectorPlan:
    """The plan, with the limits of now."""
    limits = read_limits()
    usable, free = opened.platform.memory() or (limits.usable_memory, limits.free_memory)
    return VectorPlan(
        usable,
        free,
        opened.weights_bytes,
        scratch,
        opened.pipeline.max_tokens,
        opened.max_batch_tokens,
        opened.max_num_seqs,
    )
