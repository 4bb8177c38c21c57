"""An encoder opened on a platform, with the modules behind it: what `Embedder` and the engine process begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.engine.chosen import chosen_platform
from octavo.engine.config import EngineConfig, read_environment, weight_change
from octavo.engine.loading.config import ModelFiles, open_model
from octavo.engine.loading.source import Progress, resolve
from octavo.engine.memory import refuse_weights_without_room
from octavo.engine.models.change import least_bytes
from octavo.engine.models.encoder import Encoder
from octavo.engine.models.encoder_load import load_encoder
from octavo.engine.pooling.modules import Pipeline, read_pipeline, transformer_folder
from octavo.platforms.limits import read_limits
from octavo.platforms.ops import Weights
from octavo.platforms.platform import Platform


@dataclass(frozen=True)
class Opened:
    """`folder` holds the modules. `files` are the encoder's own, still open: whoever opened it closes the checkpoint.
    `max_batch_tokens` and `max_num_seqs` bound a step, which holds at least one text of any length that is served."""

    name: str
    folder: Path
    platform: Platform
    weights: Weights
    files: ModelFiles
    encoder: Encoder
    pipeline: Pipeline
    max_batch_tokens: int
    max_num_seqs: int

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
) -> Opened:
    """Limits, platform, weights, modules. `mark` hears of every phase that has ended. ModelError, ConfigError or PlatformError
    say what is wrong."""
    environment = read_environment()
    change, limits = weight_change(config, environment), read_limits()
    cache_dir = Path(config.cache_dir).expanduser() if config.cache_dir else environment.cache
    is_offline = config.is_offline or environment.is_offline
    source = resolve(config.model, cache_dir=cache_dir, is_offline=is_offline, progress=progress)
    folder = source.path if source.path.is_dir() else source.path.parent
    inner = transformer_folder(folder)
    files = open_model(source.path if inner == folder else inner, needs_tokenizer=needs_tokenizer)
    try:
        mark("open")
        platform = chosen_platform(config, environment, limits)
        mark("platform")
        usable, free = platform.memory() or (limits.usable_memory, limits.free_memory)
        least = least_bytes(files.checkpoint, change.quantization)
        refuse_weights_without_room(least, usable_bytes=usable, free_bytes=free)
        weights = platform.weights()
        encoder = load_encoder(
            files.checkpoint,
            weights,
            config=files.config,
            max_len=config.max_model_len,
            expand=change.is_expanding,
            quantize=change.quantization,
        )
        pipeline = read_pipeline(
            folder,
            config=files.config,
            hidden=encoder.spec.hidden,
            max_tokens=encoder.spec.max_positions,
            tokenizer_config=files.tokenizer_config,
        )
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
        config.max_num_seqs,
    )
