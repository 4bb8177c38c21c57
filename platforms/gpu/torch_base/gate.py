"""Before a model is served: the self-test's cases of what it uses, run on the device and held to the reference within bounds.

A GPU, its driver and the user's torch are a combination that nobody may have tried. A case is run once per process and device.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from octavo.engine.errors import OctavoError, PlatformError
from octavo.platforms.gpu.torch_base.runtime import torch
from octavo.platforms.selftest.bounds import too_far
from octavo.platforms.selftest.cases import Case, Cell, cases, common, for_format
from octavo.platforms.selftest.digest import ReferenceCell

#: ops that a case goes through without being named for them
_ALWAYS = ("copy_blocks", "sample", "greedy_head", "gather_rows")


class Gate:
    """The cases of one device. `seconds` is what they took so far."""

    def __init__(self, cell: Cell, where: str) -> None:
        self.cell = cell
        self.where = where
        self.seconds = 0.0
        self._passed: set[str] = set()

    @property
    def num_passed(self) -> int:
        return len(self._passed)

    def prove_format(self, form: str) -> None:
        """Before weights of a format are taken."""
        self._prove(for_format(form))

    def prove(self, ops: Iterable[str], kv_dtype: str) -> None:
        """Before a model of these ops is built."""
        names = {*ops, *_ALWAYS} | ({"linear_f32"} if "gated_mlp" in ops else set())
        paged = {f"{op}_{kv_dtype}" for op in ("paged_attention", "kv_append")} if "paged_attention" in names else set()
        embeddings = {"embedding_f32", "embedding_bf16"} if "embedding" in names else set()
        wanted = names | paged | embeddings
        self._prove(case for case in cases() if case.covers[0] in wanted)

    def prove_all(self) -> None:
        """Every case that torch runs."""
        self._prove(common())

    def result(self) -> dict[str, Any]:
        """One row for `octavo doctor`, after testing what was not tested yet."""
        start = time.process_time()
        try:
            self.prove_all()
            result = "passed"
        except OctavoError as error:
            result = f"failed: {error}"
        seconds = round(time.process_time() - start, 4)
        return {"kernels": self.where, "cases": self.num_passed, "result": result, "seconds_cpu": seconds}

    def _prove(self, wanted: Iterable[Case]) -> None:
        start = time.perf_counter()
        for case in wanted:
            if case.name not in self._passed:
                self._check(case)
                self._passed.add(case.name)
        self.seconds += time.perf_counter() - start

    def _check(self, case: Case) -> None:
        try:
            why = too_far(case.name, case.run(self.cell), case.run(ReferenceCell()))
        except (RuntimeError, TypeError, NotImplementedError) as error:
            why = f"{type(error).__name__}: {error}"
        if why:
            raise PlatformError(
                f"{case.name} is wrong on {self.where} with torch {torch.__version__}: {why}; take a torch that is built for "
                "this machine, or set OCTAVO_PLATFORM to another platform (`octavo doctor` lists them)"
            )
