"""The head of a greedy step: ids straight from the product, against logits and a greedy pass over them.

    octavo bench head -- [--only SHAPE,...] [--formats FORMAT,...]

head.greedy.ROWSxWIDTHxVOCAB.FORMAT  seconds of one call; `logits` are those of head and sample in turns with it, `ratio` how many
                                     times as long they take, `saved_bytes` the logits that are not written.
Shapes: the head of SmolLM2 135M and of a model of 1 billion parameters (2048 wide, 128,256 tokens).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from benchmarks.common import interleave, parser, report, row
from benchmarks.sampling import rows_of

from octavo.platforms.platform import Capacity
from octavo.platforms.recorded.executable import RecordedExecutable
from octavo.platforms.recorded.recorder import Recorder
from octavo.platforms.recorded.tables import RopeTables
from octavo.platforms.selftest.values import batch, tensor, values
from octavo.platforms.x86.platform import X86Platform

SHAPES = ("1x576x49152", "16x576x49152", "32x576x49152", "16x2048x128256")
FORMATS = ("q4_1", "q8_0", "bf16")


def head_of(platform: X86Platform, rows: int, width: int, vocab: int, form: str) -> RecordedExecutable:
    """A model that is only a head; its hidden states are the same for every step."""
    capacity = Capacity(rows, rows, rows, 64, 1)
    rope = RopeTables(platform.native, capacity.max_len)
    recorder = Recorder(platform.native, capacity, None, rope, platform.num_threads)
    x = values("head", rows, width)
    hidden = recorder.external(x.ctypes.data, width, width, "tokens")
    weight = platform.weights().linear([tensor("head", form, vocab, width)])
    recorded = recorder.finish(recorder.lm_head(recorder.gather_rows(hidden), weight))
    recorded.held.append(x)
    made = RecordedExecutable(platform.native, platform.team, recorded, rope, None, 0, capacity)
    made.run(batch([(0, rows)]))
    return made


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows."""
    platform = X86Platform(args.threads)
    for shape in args.only.split(","):
        rows, width, vocab = map(int, shape.split("x"))
        for form in args.formats.split(","):
            head = head_of(platform, rows, width, vocab, form)
            wanted, asked = np.arange(rows, dtype=np.int32), rows_of(rows, vocab, temperature=0.0)

            def through_logits(head: RecordedExecutable = head, wanted: Any = wanted, asked: Any = asked) -> None:
                head.sample(head.head(wanted), asked)

            def greedy(head: RecordedExecutable = head, wanted: Any = wanted) -> None:
                head.greedy(wanted)

            found = interleave({"greedy": greedy, "logits": through_logits}, args.repeats, budget_s=args.budget)
            ours, theirs = min(found["greedy"].values), min(found["logits"].values)
            yield row(
                f"head.greedy.{shape}.{form}", "s", found["greedy"], threads=args.threads, logits=theirs,
                ratio=round(theirs / ours, 3), saved_bytes=4 * rows * vocab,
            )  # fmt: skip


def main() -> None:
    options = parser(__doc__, repeats=30)
    options.add_argument(
        "--only", default=",".join(SHAPES), help="ROWSxWIDTHxVOCAB, a comma list (default %(default)s)"
    )
    options.add_argument("--formats", default=",".join(FORMATS), help="a comma list (default %(default)s)")
    args = options.parse_args()
    report(results(args), args, "head")


if __name__ == "__main__":
    main()
