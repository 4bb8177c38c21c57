"""Runs prompts through a platform the way the engine will: steps of chunks, paged keys and values, scattered pages.

Everything is plain: no scheduler, no prefix cache. Logits come back per prompt, float32 [tokens, vocab].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.engine.models.decoder import Decoder
from octavo.platforms.platform import Capacity, Executable, Platform
from octavo.platforms.types import F32, I32, Batch, KVSpec


def run(
    platform: Platform,
    decoder: Decoder,
    prompts: Sequence[I32],
    *,
    chunk: int | None = None,
    kv_dtype: str = "f32",
    block_tokens: int | None = None,
    last: int | None = None,
) -> list[F32]:
    """Logits of every token of every prompt, or of its `last` tokens only.

    Each step takes up to `chunk` tokens (default: all) of every prompt that is not through yet.
    """
    longest = max(len(prompt) for prompt in prompts)
    chunk = longest if chunk is None else chunk
    block = platform.block_tokens if block_tokens is None else block_tokens
    spec = decoder.kv_spec(kv_dtype, block)
    blocks_each = -(-longest // block)
    num_pages = 1 + blocks_each * len(prompts) * len(spec.groups)
    step_tokens = min(chunk, longest) * len(prompts)
    max_logits = step_tokens if last is None else min(step_tokens, last * len(prompts))
    capacity = Capacity(step_tokens, len(prompts), max_logits, longest, num_pages)
    executable = platform.build(decoder, spec, capacity)
    wanted_from = [0 if last is None else len(prompt) - last for prompt in prompts]
    try:
        return _steps(executable, prompts, chunk, _tables(spec, len(prompts), blocks_each, num_pages), wanted_from)
    finally:
        executable.close()


def _tables(spec: KVSpec, num_seqs: int, blocks_each: int, num_pages: int) -> list[I32]:
    """Per group [num_seqs, blocks_each]: pages in scattered order, none twice, page 0 unused."""
    pages = np.random.default_rng(7).permutation(np.arange(1, num_pages, dtype=np.int32))
    return list(pages.reshape(len(spec.groups), num_seqs, blocks_each))


def _steps(
    executable: Executable, prompts: Sequence[I32], chunk: int, tables: list[I32], wanted_from: list[int]
) -> list[F32]:
    done = [0] * len(prompts)
    found: list[list[F32]] = [[] for _ in prompts]
    while active := [i for i, prompt in enumerate(prompts) if done[i] < len(prompt)]:
        ends = [min(done[i] + chunk, len(prompts[i])) for i in active]
        positions = [np.arange(done[i], end, dtype=np.int32) for i, end in zip(active, ends, strict=True)]
        counts = [len(places) for places in positions]
        is_wanted = [places >= wanted_from[i] for i, places in zip(active, positions, strict=True)]
        rows = np.flatnonzero(np.concatenate(is_wanted)).astype(np.int32)
        batch = Batch(
            token_ids=np.concatenate([prompts[i][done[i] : end] for i, end in zip(active, ends, strict=True)]),
            positions=np.concatenate(positions)[None],
            query_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            kv_len=np.array(ends, np.int32),
            token_seq=np.repeat(np.arange(len(active), dtype=np.int32), counts),
            block_tables=[np.ascontiguousarray(table[active]) for table in tables],
            logits_rows=rows,
        )
        executable.run(batch)
        if rows.size:
            logits = np.array(executable.head(rows))
            cuts = np.cumsum([int(wanted.sum()) for wanted in is_wanted])[:-1]
            for i, part in zip(active, np.split(logits, cuts), strict=True):
                found[i].append(part)
        for i, end in zip(active, ends, strict=True):
            done[i] = end
    return [np.concatenate(parts) for parts in found]
