"""Drawing tokens from logits: seconds per call of the sampler, by kind of row and size of vocabulary.

    octavo bench sampling -- [--only KIND ...] [--levels LEVEL,...] [--flat]

sampling.KIND.ROWSxVOCAB  seconds of one call, arrays and all, the mean of ten (the best repetition is `min`); of_read compares
                          the logits' bytes over that with a read of memory measured in the same run (they may well lie in a
                          cache).
Kinds: greedy; temperature (no filter); top_p; filters (top-k 50, top-p 0.95, repetition and presence penalties over 300 seen
tokens); logprobs (greedy with the 5 best). Rows are peaked as a model's are (a few tokens have most of the mass); --flat: many
thousand tokens share it, the worst case of top-p.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from benchmarks.common import measure, parser, read_bandwidth, report, row
from numpy.typing import NDArray

from octavo.platforms.cpu.module import load
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.sampling import NativeSampler
from octavo.platforms.types import SampleBatch

VOCABULARIES = (49_152, 152_064, 256_000)
SEEN = 300
CALLS = 10  # of one repetition
KINDS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "top_p": {"top_p": 0.95},
    "filters": {"top_k": 50, "top_p": 0.95, "repetition": 1.1, "presence": 0.3},
    "logprobs": {"temperature": 0.0, "num_logprobs": 5},
}


def logits_of(rows: int, vocab: int, *, is_flat: bool = False) -> NDArray[np.float32]:
    """[rows, vocab]: normal with a spread of 2.5, and unless flat forty tokens a row raised by 5 to 15."""
    rng = np.random.default_rng(vocab)
    logits = rng.standard_normal((rows, vocab), np.float32) * np.float32(2.5)
    if not is_flat:
        for r in range(rows):
            logits[r, rng.choice(vocab, 40, replace=False)] += np.linspace(5, 15, 40, dtype=np.float32)
    return logits


def rows_of(
    rows: int,
    vocab: int,
    *,
    temperature: float = 0.8,
    top_k: float = 0,
    top_p: float = 1,
    repetition: float = 1,
    presence: float = 0,
    num_logprobs: float = -1,
) -> SampleBatch:
    """Equal rows; those with penalties have SEEN tokens to apply them to."""

    def column(dtype: Any, value: float) -> Any:
        return np.full(rows, value, dtype)

    rng = np.random.default_rng(rows)
    starts, none = np.zeros(rows + 1, np.int32), np.zeros(0, np.int32)
    counts, seen = starts, none
    if repetition != 1 or presence != 0:
        counts = np.arange(0, SEEN * rows + 1, SEEN, dtype=np.int32)
        seen = np.concatenate([np.sort(rng.choice(vocab, SEEN, replace=False)) for _ in range(rows)]).astype(np.int32)
    return SampleBatch(
        temperature=column(np.float32, temperature), top_k=column(np.int32, top_k), top_p=column(np.float32, top_p),
        min_p=column(np.float32, 0), typical_p=column(np.float32, 1), presence=column(np.float32, presence),
        frequency=column(np.float32, 0), repetition=column(np.float32, repetition), seed=np.arange(rows, dtype=np.uint64),
        choice=column(np.uint32, 0), position=column(np.int64, 7), num_logprobs=column(np.int32, num_logprobs),
        count_start=counts, count_ids=seen, count_output=np.ones(len(seen), np.int32), bias_start=starts, bias_ids=none,
        bias_values=np.zeros(0, np.float32), banned_start=starts, banned_ids=none, mask_row=column(np.int32, -1),
    )  # fmt: skip


def seconds_of(sampler: NativeSampler, logits: NDArray[np.float32], batch: SampleBatch) -> float:
    """Of one call, the mean of CALLS."""
    start = time.perf_counter()
    for _ in range(CALLS):
        sampler.sample(logits, batch)
    return (time.perf_counter() - start) / CALLS


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    module = load()
    team = module.Team(args.threads, 4000)
    read = read_bandwidth(args.threads)
    yield row("sampling.read_bandwidth", "GB/s", [read / 1e9], better="higher", threads=args.threads)
    for level in filter(None, args.levels.split(",")) if args.levels else [""]:
        sampler = NativeSampler(Native(module, (level,) if level else None), team)
        for vocab in VOCABULARIES:
            for rows in (1, 16):
                logits = logits_of(rows, vocab, is_flat=args.flat)
                for kind in args.only:
                    batch = rows_of(rows, vocab, **KINDS[kind])

                    call = partial(seconds_of, sampler, logits, batch)
                    samples = measure(call, args.repeats, budget_s=args.budget)
                    rate = logits.nbytes / min(samples.values)
                    more = {"gb_per_s": round(rate / 1e9, 2), "of_read": round(rate / read, 3), "is_flat": args.flat}
                    kernel = sampler.native.table["sample"].many
                    yield row(
                        f"sampling.{kind}.{rows}x{vocab}", "s", samples, threads=args.threads, kernel=kernel, **more
                    )


def main() -> None:
    options = parser(__doc__, repeats=30)
    options.add_argument("--only", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    options.add_argument("--levels", default="", help="a comma list; default: the kernel that is chosen here")
    options.add_argument("--flat", action="store_true", help="logits without peaks")
    args = options.parse_args()
    report(results(args), args, "sampling")


if __name__ == "__main__":
    main()
