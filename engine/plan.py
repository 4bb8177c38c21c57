"""What the scheduler and its callers exchange each step: a plan for the runner, results back, outputs for the loop.

All are frozen. A plan speaks of requests by reference: their tokens and tables are append-only within an epoch, so the
runner reads `entry.request.tables[g].ids` up to the blocks it needs and copies only what it has not seen (same
`entry.epoch`: the tail of the list; another epoch: all of it).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from octavo.engine.kv.manager import BlockCopy
from octavo.engine.request import FinishReason, Request

PLACEHOLDER = -1


class PlanEntry(msgspec.Struct, frozen=True, gc=False):
    """One request in one step: run tokens at positions [start, start + num_tokens), drafts last."""

    request: Request
    epoch: int
    start: int  # position of the first token = tokens whose KV is there
    num_tokens: int  # tokens to run, drafts included
    num_logits: int  # trailing rows whose logits are wanted; 0 for none
    is_sampling: bool  # the last row (and one per draft before it) yields tokens
    drafts: tuple[int, ...] = ()  # proposed token ids, the last ones of this entry

    @property
    def token_ids(self) -> list[int]:
        """Ids to run; PLACEHOLDER where an earlier step still has to sample the id (it is in the runner's state)."""
        known = self.num_tokens - len(self.drafts)
        ids = self.request.tokens[self.start : self.start + known]
        return ids + [PLACEHOLDER] * (known - len(ids)) + list(self.drafts)


class StepOutput(msgspec.Struct, frozen=True, gc=False):
    """New tokens of one choice. `token_ids` ends with the stop token when one was sampled (then `stop_id` names it)."""

    request_id: str
    choice: int
    token_ids: list[int]
    num_cached: int  # prompt tokens whose KV was reused
    finish_reason: FinishReason | None = None
    stop_id: int | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Copies run first, in order; then the entries, as one batch."""

    step: int  # number of the plan, from 1
    entries: list[PlanEntry]
    copies: list[BlockCopy]
    num_tokens: int  # sum over entries
    released: list[
        tuple[Request, int]
    ]  # (request, epoch) whose tables ended (finished or preempted) since the last plan
    admitted: list[Request]  # whose tables begin with this plan; its copies are theirs

    @property
    def requests(self) -> list[Request]:
        """Whom the step concerns, in order."""
        return sorted({*self.admitted, *(entry.request for entry in self.entries)}, key=lambda request: request.order)

    @property
    def is_empty(self) -> bool:
        """Nothing to run."""
        return not (self.entries or self.copies)


class PlanDraft:
    """A plan while it is being made."""

    __slots__ = ("admitted", "budget", "copies", "entries", "max_tokens", "prefills")

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.budget = max_tokens  # tokens that may still be planned
        self.entries: list[PlanEntry] = []
        self.copies: list[BlockCopy] = []
        self.admitted: list[Request] = []
        self.prefills: list[Request] = []  # running requests with more to do than one plain token

    def freeze(self, step: int, released: list[tuple[Request, int]]) -> StepPlan:
        """The finished plan."""
        return StepPlan(step, self.entries, self.copies, self.max_tokens - self.budget, released, self.admitted)


class SchedulerStats(msgspec.Struct, frozen=True, gc=False):
    """Gauges and counters since start; tokens and blocks."""

    num_running: int
    num_waiting: int
    num_blocks: int
    num_used_blocks: int
    num_cached_blocks: int
    num_preemptions: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_evicted_blocks: int
    num_hash_collisions: int
    num_aborted: int
