"""Start-up self-test of the chosen native kernels: run on tiny fixed inputs, their bits held to the reference's.

Only what the model at hand uses is tested, at first use, and once per choice of kernels. When a case fails, the level to
blame is the one without which it passes; that level is disabled for every op, the chooser takes the next best, and what
was tested before is tested again as it is now chosen. Levels share bits, so nothing computed or packed is lost by it.
A case that fails whatever is left out means that the module does not fit this processor: a PlatformError.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from octavo.engine.errors import OctavoError, PlatformError
from octavo.platforms.recorded.native import Native
from octavo.platforms.select import FAST_LEVELS
from octavo.platforms.selftest.bounds import BF16_WEIGHTS
from octavo.platforms.selftest.cases import Case, Cell, covering, for_format
from octavo.platforms.selftest.digest import digest
from octavo.platforms.selftest.golden import GOLDEN

log = logging.getLogger("octavo.platforms")
FAST_TOLERANCE = 1e-5  # of the largest value: another order of float32 additions, nothing more
#: of attention: its weights are rounded to bfloat16 under another maximum than the exact levels'
FAST_ATTENTION_TOLERANCE = BF16_WEIGHTS


@dataclass
class SelfTest(ABC):
    """The self-test of a loaded module; a platform gives `cell`. `golden` maps cases to digests; `seconds`: what it took."""

    native: Native
    golden: Mapping[str, str] = field(default_factory=lambda: GOLDEN)
    seconds: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)  # levels that failed, with the reason
    _wanted: dict[str, Case] = field(default_factory=dict)
    _passed: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)

    @abstractmethod
    def cell(self, native: Native) -> Cell:
        """Kernels as a choice has them, for the cases to run on."""

    @cached_property
    def _team(self) -> Any:
        return self.native.module.Team(1, 0)

    @property
    def num_passed(self) -> int:
        """Cases passed, once per choice of kernels."""
        return len(self._passed)

    def prove_format(self, form: str) -> None:
        """Before weights of a checkpoint format are packed. PlatformError if no level gives the right bits."""
        self._prove(for_format(form))

    def prove(self, ops: Iterable[str]) -> None:
        """Before these native ops run. Ops that a case of this model has covered already cost nothing."""
        covered = {op for case in self._wanted.values() for op in case.covers}
        self._prove(covering(set(ops) - covered))

    def prove_all(self) -> None:
        """Every op of the module, for `octavo doctor` and the tests."""
        self._prove(covering(row.op for row in self.native.rows))

    def result(self, what: str) -> dict[str, Any]:
        """One row for `octavo doctor`: all kernels as chosen now, after testing what was not tested yet."""
        before = time.process_time()
        try:
            self.prove_all()
            result = "; ".join(f"{level} refused: {reason}" for level, reason in self.refused.items()) or "passed"
        except OctavoError as error:
            result = f"failed: {error}"
        seconds = round(time.process_time() - before, 4)
        return {"kernels": what, "cases": self.num_passed, "result": result, "seconds_cpu": seconds}

    def _prove(self, wanted: Iterable[Case]) -> None:
        start = time.perf_counter()
        self._wanted.update((case.name, case) for case in wanted)
        failed = self._first_failure()
        while failed is not None:
            self._disable(*failed)
            failed = self._first_failure()
        self.seconds += time.perf_counter() - start

    def _first_failure(self) -> tuple[Case, str] | None:
        """The first case that gives wrong bits as kernels are chosen now, with what it gave."""
        for case in self._wanted.values():
            key = (case.name, self._kernels(self.native, case))
            if key in self._passed:
                continue
            got = self._run(self.native, case)
            if got != self.golden.get(case.name) and not self._is_close(self.native, case):
                return case, got
            self._passed.add(key)
        return None

    def _disable(self, case: Case, got: str) -> None:
        reason = f"its self-test failed: {case.name} gave {got} instead of {self.golden.get(case.name)}"
        for level in self._to_blame(case, reason):
            self.native.disable(level, reason)
            self.refused[level] = reason
            log.warning(
                "%s level %s is not used: %s; `octavo doctor` shows the kernels in use",
                self.native.platform, level, reason,
            )  # fmt: skip

    def _to_blame(self, case: Case, reason: str) -> list[str]:
        """The single level without which the case passes, else the fewest best levels without which it does."""
        used = {self._level(name) for name in self._kernels(self.native, case)}
        levels = [level for level in reversed(self.native.levels) if level in used]
        fewest = [levels[:count] for count in range(2, len(self.native.levels) + 1) if count <= len(levels)]
        for blamed in [[level] for level in levels] + fewest:
            bad = self.native.bad_levels | dict.fromkeys(blamed, reason)
            trial = replace(self.native, bad_levels=bad)
            if self._run(trial, case) == self.golden.get(case.name) or self._is_close(trial, case):
                return blamed
        raise PlatformError(
            f"the {self.native.platform} kernels give wrong results on this processor: {case.name} fails at every level "
            f"({', '.join(levels)}); "
            "reinstall octavo, or set OCTAVO_PLATFORM=reference (slow)"
        )

    def _is_close(self, native: Native, case: Case) -> bool:
        """Whether a case that runs on kernels of a fast level gives what the exact ones give, but for rounding."""
        kernels = self._kernels(native, case)
        if not any(self._level(name) in FAST_LEVELS for name in kernels):
            return False
        exact = replace(native, is_fast=False)
        if self._run(exact, case) != self.golden.get(case.name):
            return False
        fast = [name for name in kernels if self._level(name) in FAST_LEVELS]
        allowed = self.allowed(case, fast)
        results = (case.run(self.cell(chosen)) for chosen in (native, exact))
        return all(
            np.abs(got.astype(np.float64) - want).max(initial=0) <= allowed * np.abs(want).max(initial=0)
            for got, want in zip(*results, strict=True)
        )

    def allowed(self, case: Case, fast: list[str]) -> float:
        """How far these kernels of fast levels may be from the exact ones, as a share of the largest value."""
        del case
        is_attention = any(name.startswith(("paged_attention_", "varlen_attention_bf16")) for name in fast)
        return FAST_ATTENTION_TOLERANCE if is_attention else FAST_TOLERANCE

    def _run(self, native: Native, case: Case) -> str:
        """The digest, or why there is none."""
        try:
            return digest(case.run(self.cell(native)))
        except OctavoError as error:
            return f"an error ({error})"

    def _kernels(self, native: Native, case: Case) -> tuple[str, ...]:
        choices = [native.table[op] for op in case.covers if op in native.table]
        return tuple(dict.fromkeys(name for choice in choices for name in choice.kernels))

    def _level(self, kernel: str) -> str:
        return next(row.level for row in self.native.rows if row.name == kernel)
