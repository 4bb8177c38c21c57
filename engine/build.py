"""From options to a running core: limits, platform, weights, memory plan, executable, scheduler, and one real token.

Phases are timed by name, because start-up time is a promise (`EngineInfo.load_s`). Nothing here downloads or compiles.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import blake3

from octavo.engine.chosen import chosen_platform
from octavo.engine.config import EngineConfig, WeightChange, read_environment, weight_change
from octavo.engine.core import EngineCore, make_scheduler
from octavo.engine.cost import TERMS
from octavo.engine.cost_store import CostKeeper, CostStore, expected_of
from octavo.engine.errors import EngineDeadError
from octavo.engine.loading.config import ModelFiles, open_model, tokenizer_paths
from octavo.engine.loading.mapped import stat_key
from octavo.engine.loading.source import resolve
from octavo.engine.memory import MemoryPlan, plan_memory, refuse_weights_without_room
from octavo.engine.messages import AddRequest, EngineInfo
from octavo.engine.models.change import least_bytes
from octavo.engine.models.decoder import Decoder
from octavo.engine.models.load import load_model
from octavo.engine.pace import Pace
from octavo.engine.phases import Phases
from octavo.engine.runner import Runner
from octavo.engine.sampling_params import SamplingParams
from octavo.platforms.limits import read_limits
from octavo.platforms.ops import NUMERICS_VERSION, Weights
from octavo.platforms.platform import CacheHome, Capacity, Platform
from octavo.platforms.select import FAST_LEVELS
from octavo.platforms.types import GroupKind, KVDtype, KVSpec

log = logging.getLogger("octavo.engine")
MAX_LOGITS_BYTES = 64 << 20
PACKED_CACHE_MIN_BYTES = 32 << 20  # of packed weights; below, packing them takes some 10 ms
KEEP_AFTER_S = 2.0  # packed weights go to disk that long after a load, not beside the first answer


@dataclass
class Prepared:
    """A model read, placed and planned, but not yet running."""

    platform: Platform
    source_name: str
    files: ModelFiles
    cache_dir: Path
    weights: Weights
    decoder: Decoder
    spec: KVSpec
    capacity: Capacity
    plan: MemoryPlan
    change: WeightChange
    weights_bytes: int  # as they run


def prepare(config: EngineConfig, phases: Phases, *, files: ModelFiles | None = None, is_dry: bool = False) -> Prepared:
    """Limits, platform, weights, memory plan. `files`: the model's, if they are open already. `is_dry`: sizes only, no
    weight is packed and the result cannot run."""
    environment = read_environment()
    change = weight_change(config, environment)
    limits = read_limits()
    platform = chosen_platform(config, environment, limits)
    phases.mark("platform")

    cache_dir = Path(config.cache_dir).expanduser() if config.cache_dir else environment.cache
    source = resolve(config.model, cache_dir=cache_dir, is_offline=config.is_offline or environment.is_offline)
    files = files or open_model(source.path, needs_tokenizer=False)
    usable, free = platform.memory() or (limits.usable_memory, limits.free_memory)
    refuse_weights_without_room(
        least_bytes(files.checkpoint, change.quantization), usable_bytes=usable, free_bytes=free
    )
    phases.mark("open")
    weights = platform.weights(None if is_dry else packed_home(config, files, cache_dir, change), is_dry=is_dry)
    decoder = load_model(
        files.checkpoint,
        weights,
        config=files.config or None,
        max_len=config.max_model_len,
        expand=change.is_expanding,
        quantize=change.quantization,
        quantize_head=change.is_head_too,
    )
    weights_bytes = files.checkpoint.num_bytes + decoder.grown_bytes
    phases.mark("weights")

    spec = decoder.kv_spec(cast(KVDtype, config.kv_dtype), config.block_tokens or platform.block_tokens)
    max_len = config.max_model_len or decoder.spec.max_positions
    max_logits = max(1, min(config.max_num_seqs, MAX_LOGITS_BYTES // (4 * decoder.spec.vocab)))
    capacity = Capacity(config.max_batch_tokens, config.max_num_seqs, max_logits, max_len, 2)
    plan = plan_memory(
        spec,
        platform.page_bytes(spec),
        usable_bytes=usable,
        # weights that are mapped, or not packed yet, look free
        free_bytes=min((platform.memory() or (0, read_limits().free_memory))[1], free - weights_bytes),
        weights_bytes=weights_bytes,
        scratch_bytes=platform.scratch_bytes(decoder, spec, capacity),
        kv_bytes=config.kv_bytes,
        max_model_len=max_len,
        max_num_seqs=config.max_num_seqs,
        logits_bytes=4 * max_logits * decoder.spec.vocab,
    )
    if any(group.kind is GroupKind.FULL for group in spec.groups):  # then no sequence is longer than the pool
        max_len = min(max_len, (plan.num_pages - 1) * spec.block_tokens)
    capacity = replace(capacity, num_pages=plan.num_pages, max_len=max_len)
    return Prepared(
        platform, source.name, files, cache_dir, weights, decoder, spec, capacity, plan, change, weights_bytes
    )


def preview(config: EngineConfig) -> MemoryPlan:
    """The memory plan of a model, from its headers; no weight is read."""
    made = prepare(config, Phases(), is_dry=True)
    made.platform.close()
    return made.plan


def known_costs(config: EngineConfig) -> dict[str, object]:
    """What an earlier run learned of a model's steps here, in seconds per unit; no weight is read."""
    made = prepare(config, Phases(), is_dry=True)
    keeper = cost_keeper(made, config)
    made.platform.close()
    found = keeper.found()
    if found is None:
        return {"place": keeper.store.place, "problem": "nothing is known yet; serve the model for a while"}
    return {"place": keeper.store.place, "steps": found.num_steps, **dict(zip(TERMS, found.terms, strict=True))}


def build_core(config: EngineConfig, *, files: ModelFiles | None = None, proves: bool = True) -> EngineCore:
    """Everything up to the first token. ModelError, ConfigError or PlatformError say what is wrong.

    `files`: the model's, if they are open already. `proves` off: the caller's first request takes the first token's place.
    """
    phases = Phases()
    made = prepare(config, phases, files=files)
    log.info("%s", made.plan.line())
    files, spec, platform = made.files, made.spec, made.platform
    executable = platform.build(made.decoder, spec, made.capacity)
    keeper = cost_keeper(made, config)
    cost = keeper.open([group.window for group in spec.groups], executable.knee_rows)
    scheduler = make_scheduler(
        spec,
        num_blocks=made.plan.num_pages,
        max_model_len=made.capacity.max_len,
        max_batch_tokens=config.max_batch_tokens,
        max_num_seqs=config.max_num_seqs,
        max_queue=config.max_queue,
        policy=config.policy,
        has_prefix_cache=config.has_prefix_cache,
        has_partial_reuse=config.has_partial_reuse,
        model_identity=keeper.identity,
        server_secret=os.urandom(32),
        pace=None if config.itl_ms is None else Pace(cost, config.itl_ms / 1000),
    )
    phases.mark("build")

    info = EngineInfo(
        model=made.source_name,
        architecture=files.architecture,
        vocab_size=made.decoder.spec.vocab,
        max_model_len=scheduler.max_len,
        num_blocks=made.plan.num_pages,
        block_tokens=spec.block_tokens,
        eos_ids=list(files.eos_token_ids),
        weight_formats=made.decoder.formats(),
        kv_dtype=spec.dtype,
        platform=platform.name,
        levels=list(platform.levels),
        num_threads=platform.num_threads,
        weights_bytes=made.weights_bytes,
        load_s=phases.seconds,
        epoch=int.from_bytes(os.urandom(8), "little") >> 1,
    )
    log.info(
        "%s in %s, context %d tokens; platform %s, %d threads%s",
        *(info.architecture, "/".join(info.weight_formats), info.max_model_len, info.platform, info.num_threads),
        f", CPU levels {', '.join(info.levels)}" if info.levels else "",
    )
    core = EngineCore(Runner(executable, spec, made.capacity, made.decoder.spec.vocab), scheduler, info)
    core.cost, core.cost_keeper = cost, keeper
    if proves:
        prove(core)
        phases.mark("first_token")
    if config.packed_cache != "off":
        core.keeper = Keeper(made.weights.save, made.weights.settle)
    return core


class Keeper:
    """What packed weights need once and the first answer should not wait for: `settle`, then `save` to the cache.

    Both come some seconds after the load in a thread of its own; the second also when told to.
    """

    def __init__(self, save: Callable[[], None], settle: Callable[[], None], after_s: float = KEEP_AFTER_S) -> None:
        self._save = save
        self._settle = settle
        self._lock = threading.Lock()
        self._is_settled = False
        self._timer = threading.Timer(after_s, self._later)
        self._timer.daemon = True
        self._timer.start()

    def _later(self) -> None:
        self.settle()
        self.keep()

    def settle(self) -> None:
        """Moves weights to where they are read fastest; at once the second time. Measurements begin with it."""
        with self._lock:
            if not self._is_settled:
                self._is_settled = True
                self._settle()

    def keep(self) -> None:
        """Returns when they are written, or cannot be; at once the second time."""
        self._timer.cancel()
        with self._lock:
            self._save()


def cost_keeper(made: Prepared, config: EngineConfig) -> CostKeeper:
    """The model's identity and what is known of its steps."""
    identity = model_identity(made.files, made.spec, fast_kernels(made.platform), config.tokenizer, str(made.change))
    expected = expected_of(made.decoder.spec, made.spec, made.weights_bytes)
    return CostKeeper(CostStore.on(made.cache_dir, made.platform), identity, made.source_name, expected)


def packed_home(config: EngineConfig, files: ModelFiles, cache_dir: Path, change: WeightChange) -> CacheHome | None:
    """Where packed weights are kept, by the files' identity and what becomes of them on the way; None: nowhere."""
    if config.packed_cache == "off":
        return None
    origin = f"{Path(files.path).resolve()} {change}".encode()
    identity = repr(files.checkpoint.stat_key()).encode()
    min_bytes = PACKED_CACHE_MIN_BYTES if config.packed_cache == "auto" else 0
    return CacheHome(cache_dir / "packed", origin, identity, min_bytes)


def prove(core: EngineCore) -> None:
    """One real token through everything: what `ready` means. EngineDeadError if it does not come."""
    request = AddRequest("first-token", [0], SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True))
    core.add(request)
    for _ in range(4):
        for output in core.step():
            if output.error:
                raise EngineDeadError(output.error)
            if output.finish_reason:
                return
    raise EngineDeadError("the engine gave no token in its first steps; run `octavo doctor`")


def fast_kernels(platform: Platform) -> list[str]:
    """Kernels in use whose results are not the contract's bits."""
    return sorted(v.name for v in platform.variants() if v.level in FAST_LEVELS and v.detail.get("chosen"))


def model_identity(
    files: ModelFiles, spec: KVSpec, inexact: list[str], tokenizer: str | None = None, change: str = ""
) -> bytes:
    """32 bytes that separate KV of different weights, configurations, KV dtypes, layouts, numerics and tokenizers (which
    `tokenizer` may name instead of the model's own). Files count by path and stat key, `change` is what became of their weights.

    KV depends on token ids alone: a cache that ends with its engine is right whatever the tokenizer. To whoever knows blocks
    from elsewhere by their text, ids of another tokenizer are other text.
    """
    weights = (str(Path(files.path).resolve()), files.checkpoint.stat_key())
    words = [(str(path.resolve()), stat_key(path.stat())) for path in tokenizer_paths(tokenizer or files.path)]
    parts = (weights, sorted(files.config.items()), words, repr(spec), NUMERICS_VERSION, inexact, change)
    return blake3.blake3(repr(parts).encode()).digest()
