"""What kernels read of a step (csrc_common/exec/step.h)."""

import triton
import triton.language as tl


@triton.jit
def num_rows(step, kind, fixed):
    """Rows of an op: how many tokens (0), logits rows (1) or sequences (2) the step has, or a fixed number of them (3)."""
    rows = fixed.to(tl.int64)
    if kind != 3:
        rows = tl.load(step + (3 - kind) % 3)  # counts lie in the order tokens, sequences, logits rows
    return rows
