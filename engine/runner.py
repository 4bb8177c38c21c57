"""Runs a step plan on an executable: fills the batch's arrays, asks for logits rows, draws tokens, scores prompts.

The runner owns the arrays of a step and mirrors block tables by slot: a running request keeps its slot, and only new table
entries are copied. It knows no platform; it drives `octavo.platforms.platform.Executable`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from octavo.engine.messages import TokenLogprobs
from octavo.engine.plan import PlanEntry, StepPlan
from octavo.engine.request import Request
from octavo.engine.sampler import SlotRows, forced_rows
from octavo.platforms.platform import Capacity, Executable
from octavo.platforms.types import Batch, KVSpec, SampleResult

I32 = NDArray[np.int32]


@dataclass
class StepResult:
    """Per plan entry: sampled ids, their logprobs (if asked), and prompt logprobs of the rows this step scored."""

    tokens: list[list[int]]
    logprobs: list[list[TokenLogprobs] | None]
    prompt_logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)


class _Slot:
    __slots__ = ("copied", "epoch", "index")

    def __init__(self, index: int, epoch: int, num_groups: int) -> None:
        self.index = index
        self.epoch = epoch
        self.copied = [0] * num_groups


class Runner:
    """One executable and the arrays of its steps."""

    def __init__(self, executable: Executable, spec: KVSpec, capacity: Capacity, vocab_size: int) -> None:
        self.executable = executable
        self.spec = spec
        self.capacity = capacity
        self.vocab_size = vocab_size
        max_blocks = -(-capacity.max_len // spec.block_tokens)
        # Finished and preempted requests give their slot back at the next plan, before it takes any; twice is ample.
        num_slots = 2 * capacity.max_seqs
        self._tables = [np.zeros((num_slots, max_blocks), np.int32) for _ in spec.groups]
        self._slots: dict[Request, _Slot] = {}
        self._free = list(range(num_slots - 1, -1, -1))
        self._rows = SlotRows(num_slots, vocab_size)

    def run(self, plan: StepPlan) -> StepResult:
        """Copies, one batch, logits, draws."""
        self.release(plan)
        if plan.copies:
            self.executable.copy_blocks([(copy.src, copy.dst) for copy in plan.copies])
        entries = plan.entries
        if not entries:
            return StepResult([], [])
        slots = [self._slot(entry) for entry in entries]
        self.executable.run(self._batch(entries, slots, plan.num_tokens))
        result = StepResult([[] for _ in entries], [None for _ in entries])
        self._sample(entries, slots, result)
        self._score_prompts(entries, result)
        return result

    def release(self, plan: StepPlan) -> None:
        """Takes back the slots of requests that ended or were preempted before this plan. Safe to call again."""
        for request, _ in plan.released:
            slot = self._slots.pop(request, None)
            if slot is not None:
                self._rows.clear(slot.index)
                self._free.append(slot.index)

    # -- the batch ---------------------------------------------------------------------------------------------------
    def _batch(self, entries: list[PlanEntry], slots: list[int], num_tokens: int) -> Batch:
        num_seqs = len(entries)
        counts = np.fromiter((entry.num_tokens for entry in entries), np.int32, num_seqs)
        starts = np.fromiter((entry.start for entry in entries), np.int32, num_seqs)
        query_start = np.zeros(num_seqs + 1, np.int32)
        np.cumsum(counts, out=query_start[1:])
        if num_tokens == num_seqs:  # a pure decode step: one token each
            tokens = [entry.request.tokens[entry.start] for entry in entries]
            token_ids = np.array(tokens, np.int32)
            token_seq = np.arange(num_seqs, dtype=np.int32)
            positions = starts
        else:
            token_ids = np.concatenate([np.asarray(entry.token_ids, np.int32) for entry in entries])
            token_seq = np.repeat(np.arange(num_seqs, dtype=np.int32), counts)
            positions = np.arange(num_tokens, dtype=np.int32) - query_start[token_seq] + starts[token_seq]
        kv_len = starts + counts
        width = -(-int(kv_len.max()) // self.spec.block_tokens)
        index = np.asarray(slots, np.int64)
        tables = [np.ascontiguousarray(table[index, :width]) for table in self._tables]
        return Batch(
            token_ids=token_ids,
            positions=positions.reshape(1, -1),
            query_start=query_start,
            kv_len=kv_len,
            token_seq=token_seq,
            block_tables=tables,
            logits_rows=np.zeros(0, np.int32),
        )

    def _slot(self, entry: PlanEntry) -> int:
        request = entry.request
        slot = self._slots.get(request)
        if slot is None:
            slot = self._slots[request] = _Slot(self._free.pop(), entry.epoch, len(self._tables))
            self._rows.set(slot.index, request)
        elif slot.epoch != entry.epoch:
            slot.epoch = entry.epoch
            slot.copied = [0] * len(self._tables)
        for group, table in enumerate(request.tables):
            done, ids = slot.copied[group], table.ids
            if done < len(ids):
                self._tables[group][slot.index, done : len(ids)] = ids[done:]
                slot.copied[group] = len(ids)
        return slot.index

    # -- tokens ------------------------------------------------------------------------------------------------------
    def _sample(self, entries: list[PlanEntry], slots: list[int], result: StepResult) -> None:
        """One row per sampling entry: all at once where each takes its best token and nothing else is asked, else from logits,
        in pieces the executable can hold."""
        sampling = [i for i, entry in enumerate(entries) if entry.is_sampling]
        if not sampling:
            return
        ends = np.cumsum([entry.num_tokens for entry in entries]) - 1
        if self._rows.are_greedy([slots[i] for i in sampling]):
            best = self.executable.greedy(ends[sampling].astype(np.int32)).tolist()
            for i, token in zip(sampling, best, strict=True):
                result.tokens[i] = [token]
            return
        step = self.capacity.max_logits
        for at in range(0, len(sampling), step):
            piece = sampling[at : at + step]
            logits = self.executable.head(ends[piece].astype(np.int32))
            positions = [entries[i].start + entries[i].num_tokens for i in piece]
            drawn = self.executable.sample(logits, self._rows.batch([slots[i] for i in piece], positions))
            ids = drawn.ids.tolist()
            for row, i in enumerate(piece):
                result.tokens[i] = [ids[row]]
                num_best = entries[i].request.params.logprobs
                if num_best is not None:
                    result.logprobs[i] = [token_logprobs(drawn, row, num_best)]

    def _score_prompts(self, entries: list[PlanEntry], result: StepResult) -> None:
        """Logprobs of known prompt tokens: the row of token t scores token t + 1."""
        first = 0
        for i, entry in enumerate(entries):
            request, asked = entry.request, entry.request.params.prompt_logprobs
            # After a preemption rows that were scored before are computed again but not scored again.
            begin = max(entry.start, request.num_scored)
            if asked is not None and begin < request.num_prompt:
                stop = min(entry.start + entry.num_tokens, request.num_prompt - 1)
                scored: list[TokenLogprobs] = []
                for at in range(begin, stop, self.capacity.max_logits):
                    end = min(at + self.capacity.max_logits, stop)
                    rows = np.arange(first + at - entry.start, first + end - entry.start, dtype=np.int32)
                    logits = self.executable.head(rows)
                    drawn = self.executable.sample(
                        logits, forced_rows(request.tokens[at + 1 : end + 1], asked, self.vocab_size)
                    )
                    scored += [token_logprobs(drawn, row, asked) for row in range(end - at)]
                result.prompt_logprobs[i] = scored
            first += entry.num_tokens


def token_logprobs(drawn: SampleResult, row: int, num_best: int) -> TokenLogprobs:
    """One row of a sample result as a message."""
    return TokenLogprobs(
        int(drawn.ids[row]),
        float(drawn.logprobs[row]),
        int(drawn.ranks[row]),
        drawn.best_ids[row, :num_best].tolist(),
        drawn.best_logprobs[row, :num_best].tolist(),
    )
