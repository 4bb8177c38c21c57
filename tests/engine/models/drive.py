"""Runs prompts through a platform the way the engine will: steps of chunks, paged keys and values, scattered pages.

Everything is plain: no scheduler, no prefix cache. Logits come back for every token, float32 [tokens, vocab] per
prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.platforms.platform import Capacity, Executable, Platform
from octavo.platforms.types import F32, I32, Batch, KVSpec


def run(
    platform: Platform,
    decoder: object,
    prompts: Sequence[I32],
    *,
    chunk: int | None = None,
    kv_dtype: str = "f32",
    block_tokens: int | None = None,
) -> list[F32]:
    """Logits of every token of every prompt; each step takes up to `chunk` tokens (default: all) of each unfinished prompt."""
    longest = max(len(prompt) for prompt in prompts)
    chunk = longest if chunk is None else chunk
    block = platform.block_tokens if block_tokens is None else block_tokens
    spec: KVSpec = decoder.kv_spec(kv_dtype, block)  # type: ignore[attr-defined]
    blocks_each = -(-longest // block)
    num_pages = 1 + blocks_each * len(prompts) * len(spec.groups)
    step_tokens = min(chunk, longest) * len(prompts)
    capacity = Capacity(step_tokens, len(prompts), step_tokens, longest, num_pages)
    executable = platform.build(decoder, spec, capacity)  # type: ignore[arg-type]
    try:
        return _steps(executable, prompts, chunk, _tables(spec, len(prompts), blocks_each, num_pages))
    finally:
        executable.close()


def _tables(spec: KVSpec, num_seqs: int, blocks_each: int, num_pages: int) -> list[I32]:
    """Per group [num_seqs, blocks_each]: pages in scattered order, none twice, page 0 unused."""
    pages = np.random.default_rng(7).permutation(np.arange(1, num_pages, dtype=np.int32))
    return list(pages.reshape(len(spec.groups), num_seqs, blocks_each))


def _steps(executable: Executable, prompts: Sequence[I32], chunk: int, tables: list[I32]) -> list[F32]:
    done = [0] * len(prompts)
    found: list[list[F32]] = [[] for _ in prompts]
    while any(done[i] < len(prompt) for i, prompt in enumerate(prompts)):
        active = [i for i, prompt in enumerate(prompts) if done[i] < len(prompt)]
        counts = [min(chunk, len(prompts[i]) - done[i]) for i in active]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        num_tokens = int(starts[-1])
        rows = np.arange(num_tokens, dtype=np.int32)
        places = zip(active, counts, strict=True)
        positions = np.concatenate([np.arange(done[i], done[i] + n, dtype=np.int32) for i, n in places])
        batch = Batch(
            token_ids=np.concatenate([prompts[i][done[i] : done[i] + n] for i, n in zip(active, counts, strict=True)]),
            positions=positions[None],
            query_start=starts,
            kv_len=np.array([done[i] + n for i, n in zip(active, counts, strict=True)], np.int32),
            token_seq=np.repeat(np.arange(len(active), dtype=np.int32), counts),
            block_tables=[np.ascontiguousarray(table[active]) for table in tables],
            logits_rows=rows,
        )
        executable.run(batch)
        logits = executable.head(rows)
        for slot, i in enumerate(active):
            found[i].append(np.array(logits[starts[slot] : starts[slot + 1]]))
            done[i] += counts[slot]
    return [np.concatenate(parts) for parts in found]
