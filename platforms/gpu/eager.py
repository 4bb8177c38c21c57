"""Ops run at once on a GPU, on numpy arrays that go there and back: for the self-test and the conformance suite."""

from __future__ import annotations

from octavo.platforms.gpu.recorder import GpuRecorder
from octavo.platforms.recorded.eager import EagerOps


class GpuEagerOps(EagerOps):
    """See `EagerOps`."""

    recorder = GpuRecorder
