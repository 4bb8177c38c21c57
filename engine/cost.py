"""How long a step will take: counted work times seconds per unit of work, corrected after every step.

    seconds = step + token * rows of the step          (one pair below `knee` rows, one from there on: other kernels)
            + kv * keys read by every sequence + pair * (query, key) pairs of chunks beyond that + row * logits rows

The terms start from operations and bytes (`expected_terms`) or from an earlier run, and follow what steps really take: a
Kalman filter over the terms, in which the terms wander slowly, a step's time is known to a tenth, and a term is doubted by a
share of itself: doubt grows with it, so a term that begins ten times too small is found within a few steps. Whatever unit the
start is in, the first step sets it. A step that takes absurdly long (the machine was away) counts only up to a bound. Work is
counted in tokens; a sliding window shortens what a query sees. Knows no clock, no platform and no scheduler.
Source of the filter: Kalman, A New Approach to Linear Filtering and Prediction Problems, 1960.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

#: names of the terms, in the order of every array here
TERMS = ("step_few", "token_few", "step_many", "token_many", "kv", "pair", "row")
KINDS = ("decode", "mixed")  # steps without and with chunks of prompts
RATIO_BOUNDS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0)
_NUM_TERMS = len(TERMS)
_NOISE = 0.1  # what a step's time says of its work, as a share
_WANDER = 1e-4  # variance that a term gains per step, as a share of its square
_LEAST = 1e-3  # no term falls below this share of where it began
_RECENT = 128  # steps with chunks whose second-worst ratio is what predictions that must hold leave room for
_SURE = 1.15  # before so many have been seen
_MOST_SURE = 1.2  # more than this is no longer the work's doing, and shorter chunks would not help
_ANCHORS = 15  # decode steps of which the middle one stands for all
_STEADY = 64  # decode steps after which only every eighth teaches
_TICK_S = 1e-9  # what clocks tell apart


class Work:
    """What a step has to do. Tokens, but `num_pairs` counts (query, key) pairs of chunks beyond each one's last token."""

    __slots__ = ("num_chunks", "num_kv", "num_pairs", "num_rows", "num_tokens")

    def __init__(self) -> None:
        self.num_tokens = 0
        self.num_chunks = 0
        self.num_kv = 0.0
        self.num_pairs = 0.0
        self.num_rows = 0


class CostModel:
    """Seconds of steps of one model on one machine. `windows`: per KV group the visible tokens, 0 for all. `knee`: rows
    from which other kernels run, 0 for none. `terms`: seconds per unit, as TERMS, with the variance `doubt` (as a share of the
    square) of what an earlier run learned; without it they are no more than proportions, in any unit."""

    def __init__(
        self,
        terms: Sequence[float],
        *,
        windows: Sequence[int] = (0,),
        knee: int = 0,
        doubt: float | None = None,
    ) -> None:
        if len(terms) != _NUM_TERMS or not all(0 < term < math.inf for term in terms):
            raise ValueError(f"cost terms {list(terms)}: {_NUM_TERMS} finite numbers above 0 are needed")
        self.knee = knee
        self.num_steps = 0  # learned from
        self.predicted_s = 0.0
        self._windows = tuple(window or 1 << 62 for window in windows)
        self._is_full = not any(windows)
        self._unit = np.array(terms, np.float64)
        self._share = np.ones(_NUM_TERMS)  # of the unit
        self._doubt = np.eye(_NUM_TERMS) * (1.0 if doubt is None else doubt)
        self._is_scaled = doubt is not None
        self._terms: list[float] = self._unit.tolist()
        self._deviation = [0.5 if doubt is None else _NOISE] * 2  # mean, as a share, by kind
        self._recent = deque([_SURE] * _RECENT, maxlen=_RECENT)  # actual over predicted, of steps with chunks
        self._sure = _SURE  # times what is predicted, 99 of 100 steps with chunks take no longer
        self._num_seen = [0, 0]
        self._decodes: deque[tuple[Work, float]] = deque(maxlen=_ANCHORS)  # the last ones
        self._anchor: tuple[Work, float] | None = None  # the middle one of them, once it was asked for
        self._ratio_counts = [[0] * (len(RATIO_BOUNDS) + 1) for _ in KINDS]
        self._ratio_sums = [0.0, 0.0]

    # -- work --------------------------------------------------------------------------------------------------------------
    def work(self, entries: Iterable[tuple[int, int, int]]) -> Work:
        """Work of a step's entries: (tokens stored before, tokens to run, logits rows) each."""
        work = Work()
        for start, count, rows in entries:
            self.add(work, start, count, rows)
        return work

    def add(self, work: Work, start: int, count: int, rows: int) -> None:
        """One more entry."""
        work.num_tokens += count
        work.num_rows += rows
        if count == 1:
            work.num_kv += start + 1 if self._is_full else self._seen(start + 1)
            return
        kv, pairs = self._chunk(start, count)
        work.num_chunks += 1
        work.num_kv += kv
        work.num_pairs += pairs

    def _seen(self, length: int) -> float:
        """Keys that a query at the end of `length` tokens sees, averaged over the groups."""
        if self._is_full:
            return length
        return sum([min(length, window) for window in self._windows]) / len(self._windows)

    def _chunk(self, start: int, count: int) -> tuple[float, float]:
        return self._seen(start + count), (count - 1) * self._seen(start + (count + 1) // 2)

    # -- predictions -------------------------------------------------------------------------------------------------------
    def seconds(self, work: Work) -> float:
        """What the step will take."""
        return self._seconds(work.num_tokens, work.num_kv, work.num_pairs, work.num_rows)

    def _seconds(self, tokens: int, kv: float, pairs: float, rows: int) -> float:
        step_few, token_few, step_many, token_many, per_kv, per_pair, per_row = self._terms
        linear = step_few + token_few * tokens if tokens < self.knee else step_many + token_many * tokens
        return linear + per_kv * kv + per_pair * pairs + per_row * rows

    def longest(
        self, work: Work, start: int, most: int, rows_each: int, within_s: float, *, is_sure: bool = True
    ) -> int:
        """How many tokens behind `start` fit into the step beside `work`: 0 to `most`, `rows_each` logits rows for each.
        `is_sure` leaves room so that one in a hundred takes longer, by what predictions have been off; else the mean counts."""
        if is_sure:
            within_s /= self._sure

        def fits(count: int) -> bool:
            kv, pairs = self._chunk(start, count)
            tokens, rows = work.num_tokens + count, work.num_rows + count * rows_each
            return self._seconds(tokens, work.num_kv + kv, work.num_pairs + pairs, rows) <= within_s

        # Beyond the knee a step may be shorter than before it, so each side is searched by itself, the far one first.
        knee_at = max(1, self.knee - work.num_tokens)
        for low, high in ((knee_at, most), (1, min(most, knee_at - 1))):
            if low > high or not fits(low):
                continue
            while low < high:
                middle = (low + high + 1) // 2
                if fits(middle):
                    low = middle
                else:
                    high = middle - 1
            return low
        return 0

    # -- learning ----------------------------------------------------------------------------------------------------------
    def observe(self, work: Work, seconds: float) -> None:
        """A step with this work took so long. Nothing is learned from no time or no tokens."""
        if not _TICK_S <= seconds < math.inf or not work.num_tokens:
            return
        if not self._is_scaled:
            self._unit *= seconds / self.seconds(work)
            self._terms = self._unit.tolist()
            self._is_scaled = True
        kind = 1 if work.num_chunks else 0
        predicted = self.seconds(work)
        ratio = seconds / predicted
        self.predicted_s += predicted
        self._ratio_sums[kind] += ratio
        self._ratio_counts[kind][bisect_left(RATIO_BOUNDS, ratio)] += 1
        deviation = self._deviation[kind]
        self._num_seen[kind] += 1
        rate = max(0.05, 1 / (1 + self._num_seen[kind]))
        self._deviation[kind] = deviation + rate * (min(abs(ratio - 1), 0.5) * 1.25 - deviation)
        if kind == 0:
            self._decodes.append((work, seconds))
            self._anchor = None
            if self._num_seen[0] <= _STEADY or self._num_seen[0] % 8 == 0:
                self._correct(work, seconds, deviation)
            return
        self._recent.append(ratio)
        self._sure = min(max(sorted(self._recent)[-2], 1.0), _MOST_SURE)
        self._correct(work, seconds, deviation)
        # Chunks come in rows without a decode step between; what one takes must not be forgotten over them. It is told many
        # times then, so it must not be a step that something disturbed.
        if self._decodes:
            if self._anchor is None:
                ordered = sorted(self._decodes, key=lambda seen: seen[1] / self.seconds(seen[0]))
                self._anchor = ordered[len(ordered) // 2]
            self._correct(*self._anchor, self._deviation[0])

    def _correct(self, work: Work, seconds: float, deviation: float) -> None:
        """Moves the terms by what a step was off, each by its part in the prediction and by how little it is known."""
        predicted = self.seconds(work)
        bound = max(0.2, 4 * deviation)
        off = min(max(seconds / predicted - 1, -bound), bound)
        tokens, is_few = work.num_tokens, work.num_tokens < self.knee
        few, many = (1, 0) if is_few else (0, 1)
        counts = (few, few * tokens, many, many * tokens, work.num_kv, work.num_pairs, work.num_rows)
        part = np.array(counts, np.float64) * self._unit / predicted
        spread = self._doubt @ part
        gain = spread / (float(part @ spread) + _NOISE * _NOISE)
        share = np.maximum(self._share + gain * off, _LEAST)
        # Doubt is a share of the term, so it goes along with it.
        grown = share / self._share
        doubt = (self._doubt - np.outer(gain, spread)) * np.outer(grown, grown)
        doubt[np.diag_indices(_NUM_TERMS)] += _WANDER * share * share
        # A term that no step showed for long is doubted by as much as it is itself, not without bound.
        shrink = np.minimum(1.0, share / np.sqrt(doubt.diagonal()))
        doubt *= np.outer(shrink, shrink)
        self._share, self._doubt = share, doubt
        self._terms = (share * self._unit).tolist()
        self.num_steps += 1

    # -- reports -----------------------------------------------------------------------------------------------------------
    @property
    def terms(self) -> dict[str, float]:
        """Seconds per unit, by name."""
        return dict(zip(TERMS, self._terms, strict=True))

    def stats(self) -> dict[str, float]:
        """Counters and gauges by name; `engine/server/metrics.py` says what each is called outside."""
        out = {"step_predicted_seconds": self.predicted_s}
        out |= {f"step_cost_term:{name}": seconds for name, seconds in self.terms.items()}
        for kind, counts, total in zip(KINDS, self._ratio_counts, self._ratio_sums, strict=True):
            bounds = (*map(str, RATIO_BOUNDS), "+Inf")
            out |= {f"step_cost_ratio:{kind}:{bound}": count for bound, count in zip(bounds, counts, strict=True)}
            out[f"step_cost_ratio:{kind}:sum"] = total
        return out


def expected_terms(
    *, linear_ops: float, linear_bytes: float, head_ops: float, pair_ops: float, kv_bytes: float
) -> tuple[float, ...]:
    """Terms in proportion, from what a token costs: operations of its linear layers, of its row of the head, and per key it
    sees; bytes of all weights and of one token's keys and values. A machine that does 8 operations per byte it reads is
    assumed; the unit (10 GB a second) is set right by the first step."""
    byte_s, op_s = 1e-10, 1e-10 / 8
    step = 5e-4 + linear_bytes * byte_s
    token = linear_ops * op_s
    pair = 2 * pair_ops * op_s
    return (step, token, step, token, kv_bytes * byte_s + pair, pair, 5e-6 + head_ops * op_s)
