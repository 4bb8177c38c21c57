"""What a step's batch may not ask for: refused by the same checks on every platform, never silently ignored."""

from __future__ import annotations

import numpy as np

from octavo.engine.errors import PlatformError
from octavo.platforms.platform import Capacity
from octavo.platforms.types import Batch


def check_batch(batch: Batch) -> None:
    """PlatformError for what a batch may carry but no platform serves yet."""
    if batch.embeds is not None:
        raise PlatformError("a batch of embedding rows is not served yet; give token ids")
    if batch.adapter_slots is not None and np.any(batch.adapter_slots >= 0):
        raise PlatformError("LoRA adapters are not served yet; adapter_slots must be absent or -1")
    if batch.attention_modes is not None and any(mode != "causal" for mode in batch.attention_modes):
        raise PlatformError(f"attention modes {set(batch.attention_modes)} are not served yet; only causal is")
    if batch.state_slots is not None:
        raise PlatformError("recurrent state is not served yet; state_slots must be absent")
    if batch.positions.shape[0] != 1:
        raise PlatformError(f"{batch.positions.shape[0]} rows of positions (mrope) are not served yet; give one row")
    if batch.taps:
        raise PlatformError(f"taps on hidden states are not served yet; asked for {', '.join(batch.taps)}")


def check_size(batch: Batch, capacity: Capacity) -> None:
    """PlatformError for a step beyond what the executable was built for: its arrays have no room for it."""
    for name, found, allowed in (
        ("tokens", batch.num_tokens, capacity.max_tokens),
        ("sequences", batch.num_seqs, capacity.max_seqs),
    ):
        if found > allowed:
            raise PlatformError(f"a step of {found} {name} was given; this executable takes at most {allowed}")
