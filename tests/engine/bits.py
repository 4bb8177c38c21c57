"""Runs prompts through a whole engine and keeps the bytes of every logits row that was drawn from.

Rows are named by (seed, position): the seed says which request, whatever its place in the batch, so runs with other
neighbours, chunks, threads, levels or caches can be compared row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny, tiny_gguf

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.platforms.types import SampleBatch, SampleResult
from octavo.quant.formats import BY_NAME
from octavo.quant.load import pack

SMALL_POOL_BYTES = 16 << 20


@dataclass
class Trace:
    """Token ids by seed, logits bytes by (seed, position), cached tokens by seed."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    logits: dict[tuple[int, int], bytes] = field(default_factory=dict)
    num_cached: dict[int, int] = field(default_factory=dict)

    def of(self, seeds: Sequence[int]) -> tuple[Any, Any]:
        """What must not change, for these requests only."""
        return (
            {seed: self.tokens[seed] for seed in seeds},
            {key: row for key, row in self.logits.items() if key[0] in seeds},
        )


def make_core(model: Path, **options: Any) -> EngineCore:
    """A core over a tiny model, small and quick."""
    defaults = {"kv_bytes": SMALL_POOL_BYTES, "max_batch_tokens": 256, "max_num_seqs": 32, "num_threads": 1}
    return build_core(EngineConfig(model=str(model), **{**defaults, **options}))


def watch(core: EngineCore, trace: Trace) -> None:
    """Keeps the logits of every drawn row in `trace`."""
    executable = core.runner.executable
    plain = executable.sample

    def sample(logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        for row, (seed, position) in enumerate(zip(batch.seed.tolist(), batch.position.tolist(), strict=True)):
            trace.logits[(seed, position)] = logits[row].tobytes()
        return plain(logits, batch)

    executable.sample = sample  # type: ignore[method-assign]


def run(
    core: EngineCore, prompts: dict[int, list[int]], num_tokens: int = 6, *, is_watched: bool = True, **params: Any
) -> Trace:
    """All prompts (by seed) at once, to the end; logits stay unseen unless the run is watched."""
    trace = Trace()
    if is_watched:
        watch(core, trace)
    for seed, prompt in prompts.items():
        sampling = SamplingParams(seed=seed, max_tokens=num_tokens, ignore_eos=True, **{"temperature": 0.8, **params})
        core.add(AddRequest(f"{seed}", prompt, sampling))
        trace.tokens[seed] = []
    while core.has_work:
        for output in core.step():
            assert not output.error, output.error
            trace.tokens[int(output.request_id)] += output.tokens
            trace.num_cached[int(output.request_id)] = output.num_cached
    return trace


def prompts(lengths: Sequence[int], first_seed: int = 100) -> dict[int, list[int]]:
    """Different random prompts of these lengths, by seed."""
    rng = np.random.default_rng(first_seed)
    return {first_seed + i: rng.integers(0, tiny.VOCAB, n).tolist() for i, n in enumerate(lengths)}


def write_quantized(case: str, form: str, path: Path, *, but: str = "") -> Path:
    """The case as GGUF with every linear weight in `form` (norms, and the tensor `but`, stay float32)."""
    plain = tiny_gguf.write_gguf(case, path.with_suffix(".f32.gguf"))
    source, writer = GGUFFile.open(plain), GGUFWriter()
    for key, value in source.metadata.items():
        writer.add(key, value)
    for name, info in source.tensors.items():
        values = source.data(name).view(np.float32).reshape(info.shape)
        is_matrix = name != but and len(info.shape) == 2 and info.shape[1] % BY_NAME[form].block_size == 0
        raw = pack(form, values) if is_matrix else values.view(np.uint8)
        writer.add_tensor(name, form if is_matrix else "f32", info.shape, np.ascontiguousarray(raw).view(np.uint8))
    writer.write(path)
    return path
