"""What processes of our own change around them for their start; a library must not, so `LLM` does not.

The cyclic collector: what a start imports and loads stays, and looking through it again and again takes 10 to 30 ms of 300.
Afterwards it does as usual and leaves alone what was there by then.

numpy's OpenBLAS starts a thread per processor when it is imported, and each of them spins for 100 ms: beside the packing of
weights on a small machine. Only the reference platform multiplies with it.

The frames of Python calls lie in chunks of 16 KiB, and a chunk is mapped and unmapped each time that a call crosses the end
of the one before: 900 to 3,700 times in a start, 20 to 80 ms, where imports happen to cross it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar, cast

STARTING = 200_000  # objects made since the last collection, instead of some hundreds
ROOM_SLOTS = 1 << 14

_Main = TypeVar("_Main", bound=Callable[..., object])
_usual = gc.get_threshold()


def begin() -> None:
    """First of all in a process, before numpy is imported."""
    gc.set_threshold(STARTING)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def settle() -> None:
    """Once it has loaded: the collector is back, for new objects only."""
    gc.freeze()
    gc.set_threshold(*_usual)


def roomy(main: _Main) -> _Main:
    """A process's outermost function, with a frame of 128 KiB: it gets a chunk of 256, with room for all that it calls."""
    function = cast(FunctionType, main)
    function.__code__ = function.__code__.replace(co_stacksize=ROOM_SLOTS)
    return main
