"""Each step, choose which requests run and how many tokens of each, within a token budget and the free KV blocks.

Invariants, each the name of a test in tests/engine/test_scheduler.py:
  1. never_promise_a_block_the_pool_lacks: what cannot fit now waits, what can never fit is refused at once
  2. running_requests_decode_before_prefills_spend_the_budget
  3. a_preempted_request_returns_to_the_front
  4. order_among_equals_is_arrival: in admission, in the step, and (from the back) in preemption
  5. the_result_depends_only_on_the_arguments: no clock after arrival, no tensor, no set or hash order
  6. every_admitted_request_finishes: the first in order can always take the blocks of those behind it
States: WAITING -> RUNNING -> FINISHED, RUNNING -> WAITING (preempted), LOADING -> WAITING. Units: tokens and blocks.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from octavo.engine.accept import accept, end_reason
from octavo.engine.admission import check_length, check_queue
from octavo.engine.errors import RequestError
from octavo.engine.kv.manager import KVManager
from octavo.engine.pace import Pace
from octavo.engine.plan import PlanDraft, PlanEntry, SchedulerStats, StepOutput, StepPlan
from octavo.engine.request import FinishReason, Request, Status
from octavo.engine.waiting import Policy, WaitingQueue, fcfs

_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Sizes of a step and of the queue."""

    max_batch_tokens: int = 2048  # tokens run in one step
    max_num_seqs: int = 64  # requests running at once
    max_model_len: int = 4096  # tokens of prompt and output together
    max_waiting: int = 10_000  # choices that may wait; more is an OverloadedError
    max_chunk_tokens: int = 0  # tokens of one prompt in one step; 0: only the budget limits it
    watermark: float = 0.01  # share of the pool kept free at admission, for those already running to grow into

    def __post_init__(self) -> None:
        if not 0 < self.max_num_seqs <= self.max_batch_tokens:
            raise ValueError(f"max_num_seqs {self.max_num_seqs} must be in [1, max_batch_tokens]")
        if self.max_model_len < 2 or self.max_waiting < 1 or self.max_chunk_tokens < 0 or not 0 <= self.watermark < 1:
            raise ValueError(f"a scheduler setting is out of range: {self}")


class Scheduler:
    """Requests in, plans out, results in, outputs out: `add`, `plan`, `commit`, `abort` (and, seldom, `finish`, `fail`).

    `pace` shortens chunks of prompts for the sake of running streams. `fault(name)` is called at named points, so that tests
    can stop the process there: plan.begin, plan.end, commit.begin, commit.end. `plan` may be called once more before the
    `commit` of the plan before.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVManager,
        *,
        policy: Policy = fcfs,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        fault: Callable[[str], object] | None = None,
    ) -> None:
        self.config = config
        self.kv = kv
        # The length limit is what the model *and* the pool can hold.
        self.max_len = min(config.max_model_len, kv.max_tokens)
        if self.max_len < 2:
            raise ValueError(f"a pool of {kv.pool.num_usable} blocks cannot hold one sequence of 2 tokens")
        self.pace = pace
        self._policy = policy
        self._clock = clock
        self._fault = fault
        self._watermark = -(-int(config.watermark * 1e6) * kv.pool.num_usable // 10**6)
        self._requests: dict[str, list[Request]] = {}
        self._waiting = WaitingQueue()
        self._running: list[Request] = []  # by order
        self._num_held = 0  # choices that wait for the prompt of their first choice
        self._num_added = self._step = 0
        self._released: list[tuple[Request, int]] = []
        self._blocked_head: Request | None = None  # head of the queue that did not fit, and the free blocks it needs
        self._blocked_need = 0
        self._num_preemptions = self._num_prompt_tokens = self._num_cached_tokens = self._num_aborted = 0

    # -- the four calls ------------------------------------------------------------------------------------------------

    def add(self, request: Request, leader_id: str | None = None) -> list[Request]:
        """Queue a request, and its `params.n` choices as requests of their own under the same id. `leader_id` names an
        unfinished request with the same prompt whose KV this one shall wait for (choices sent one by one). Raises
        TooLargeError, OverloadedError, RequestError before anything is kept."""
        if request.request_id in self._requests:
            raise RequestError(f"request id {request.request_id!r} is in use; choose another", param="request_id")
        check_length(request, self.kv, self.config.max_model_len)
        check_queue(request, len(self._waiting) + self._num_held, self.config.max_waiting)
        if request.arrival_s is None:
            request.arrival_s = self._clock()
        choices = [request, *(request.fork(i) for i in range(1, request.params.n))]
        for choice in choices:
            self._num_added += 1
            choice.max_len = min(choice.max_len, self.max_len)
            choice.order = (*self._policy(choice), self._num_added)
        self._requests[request.request_id] = choices
        self._num_held += len(choices) - 1
        leader = self._requests[leader_id][0] if leader_id in self._requests else None
        if leader is not None and leader is not request and not leader.num_output and not leader.is_finished:
            request.leader = leader
            leader.followers.append(request)
            self._num_held += 1
        else:
            self._waiting.push(request)
        return choices

    def plan(self) -> StepPlan:
        """The next step. Empty when nothing can run."""
        if self._fault is not None:
            self._fault("plan.begin")
        self._step += 1
        self._make_way()
        draft = PlanDraft(self.config.max_batch_tokens)
        self._plan_decodes(draft)
        if self.pace is not None:
            self.pace.begin([(entry.start, 1, 1) for entry in draft.entries])
        for request in draft.prefills:
            if draft.budget > 0 and request.status is Status.RUNNING:
                self._run(request, draft)
        if self._waiting:
            self._admit(draft)
        self.kv.unpin()
        released, self._released = self._released, []
        plan = draft.freeze(self._step, released)
        if self._fault is not None:
            self._fault("plan.end")
        return plan

    def commit(self, plan: StepPlan, results: Sequence[list[int]]) -> list[StepOutput]:
        """Take in what a plan's step sampled: `results[i]` holds 0..n token ids for `plan.entries[i]` (ignored where
        the entry does not sample). 0 tokens for a sampling entry: nothing was decided, its last token runs again."""
        if self._fault is not None:
            self._fault("commit.begin")
        outputs: list[StepOutput] = []
        finished = Status.FINISHED
        for entry, sampled in zip(plan.entries, results, strict=True):
            request = entry.request
            if request.status is finished:
                continue
            if not entry.is_sampling:
                self._commit_chunk(request, entry, outputs)
                continue
            request.num_placeholders -= 1
            if len(sampled) != 1 or entry.drafts:
                sampled = accept(request, entry, sampled)
                if not sampled:
                    continue
            elif request.epoch == entry.epoch:
                request.num_computed = entry.start + entry.num_tokens
            tokens = request.tokens
            tokens += sampled
            if request.epoch == entry.epoch and request.num_computed >= request.hash_at:
                self.kv.commit(request)
            if request.followers:
                self._free_followers(request)
            if request.num_scored < request.num_prompt:
                request.num_scored = request.num_prompt
                request.is_plain = True
            reason = end_reason(request)
            if reason is not None:
                request.stop_id = sampled[-1] if reason == "stop" else None
                self._end(request, reason)
            outputs.append(
                StepOutput(request.request_id, request.choice, sampled, request.num_cached, reason, request.stop_id)
            )
        if self._fault is not None:
            self._fault("commit.end")
        return outputs

    def abort(self, request_id: str) -> bool:
        """End all choices of a request and free their blocks now; False when there is none by this id."""
        choices = self._requests.get(request_id)
        if choices is None:
            return False
        self._num_aborted += 1
        for choice in list(choices):
            if choice.status is not Status.FINISHED:
                self._end(choice, "abort")
        return True

    def abort_all(self) -> list[Request]:
        """`abort` of every request; the choices that had not finished, in order of arrival."""
        ended = [r for choices in self._requests.values() for r in choices if r.status is not Status.FINISHED]
        for request_id in list(self._requests):
            self.abort(request_id)
        return ended

    # -- for the loop --------------------------------------------------------------------------------------------------

    def finish(self, request_id: str, reason: FinishReason, choice: int | None = None) -> bool:
        """End one choice (None: all) for a reason found elsewhere (a stop string, an error); False when none is left."""
        choices = self._requests.get(request_id, ())
        ended = [r for r in choices if choice in (None, r.choice) and r.status is not Status.FINISHED]
        for request in ended:
            self._end(request, reason)
        return bool(ended)

    def fail(self, plan: StepPlan) -> list[Request]:
        """The step of `plan` broke and will not be committed: every request in it ends with "error", and nothing that
        the step should have computed or copied is remembered. The requests ended."""
        ended = [request for request in plan.requests if request.status is not Status.FINISHED]
        for request in ended:
            self._end(request, "error", is_sound=False)
        return ended

    @property
    def has_work(self) -> bool:
        """Some request has not finished."""
        return bool(self._requests)

    def stats(self) -> SchedulerStats:
        """Gauges and counters."""
        pool = self.kv.pool
        return SchedulerStats(
            num_running=len(self._running), num_waiting=len(self._waiting) + self._num_held, num_blocks=pool.num_usable,
            num_used_blocks=pool.num_used, num_cached_blocks=len(self.kv.index), num_preemptions=self._num_preemptions,
            num_prompt_tokens=self._num_prompt_tokens, num_cached_tokens=self._num_cached_tokens,
            num_evicted_blocks=pool.num_evicted, num_hash_collisions=self.kv.index.num_collisions,
            num_aborted=self._num_aborted,
        )  # fmt: skip

    # -- plan ----------------------------------------------------------------------------------------------------------

    def _plan_decodes(self, draft: PlanDraft) -> None:
        """Every running request that needs one plain token, in order; the others are left for after that."""
        entries, prefills, step, running = draft.entries, draft.prefills, self._step, Status.RUNNING
        for request in self._running[:]:
            start = request.num_planned
            if len(request.tokens) + request.num_placeholders - start != 1 or request.drafts or not request.is_plain:
                prefills.append(request)
                continue
            if request.status is not running or (request.num_placeholders and start + 1 >= request.max_len):
                continue
            if start >= request.event_at and not self._make_room(request, start + 1):
                prefills.append(request)
                continue
            request.num_planned = start + 1
            request.num_placeholders += 1
            request.planned_step = step
            entries.append(PlanEntry(request, request.epoch, start, 1, 1, True))
        draft.budget -= len(entries)

    def _admit(self, draft: PlanDraft) -> None:
        """Waiting requests in order until one does not fit: nobody overtakes, so the large are not starved."""
        chunk = self.config.max_chunk_tokens or self.config.max_batch_tokens
        reserved = sum(self.kv.outstanding(r, chunk) for r in draft.prefills if r.status is Status.RUNNING)
        while draft.budget > 0 and len(self._running) < self.config.max_num_seqs:
            request = self._waiting.peek()
            if request is None or request.num_placeholders:
                break
            free = self._num_spare() - reserved
            if self._running and request is self._blocked_head and free < self._blocked_need:
                break
            hit = self.kv.find(request)
            if self.pace is not None and not self.pace.may_begin(self.kv.num_found(hit), len(request.tokens)):
                break
            need = self.kv.cost(request, hit, chunk)
            if self._running and need > free:
                self._blocked_head, self._blocked_need = request, need
                break
            self._blocked_head = None
            self._waiting.pop()
            draft.copies += self.kv.attach(request, hit)
            draft.admitted.append(request)
            request.status = Status.RUNNING
            # Its copies are in this plan: it must not lose its blocks again within it.
            request.planned_step = self._step
            insort(self._running, request, key=_order)
            if not request.is_admitted:
                request.is_admitted = True
                request.num_cached = min(request.num_computed, request.num_prompt)
                self._num_prompt_tokens += request.num_prompt
                self._num_cached_tokens += request.num_cached
            self._run(request, draft)
            reserved += self.kv.outstanding(request, chunk)

    def _run(self, request: Request, draft: PlanDraft) -> None:
        """Plan as many tokens of one request as budget and blocks allow."""
        start = request.num_planned
        known = len(request.tokens) + request.num_placeholders
        target = known - start
        if target <= 0 or (request.num_placeholders and known >= request.max_len):
            return
        count = most = min(target, draft.budget, self.config.max_chunk_tokens or target)
        if self.pace is not None and not (count := self.pace.limit(start, most, int(request.is_scoring))):
            return
        is_cut = count < most
        drafts: tuple[int, ...] = ()
        if count == target and request.drafts and not request.num_placeholders:
            drafts = request.drafts[: max(0, min(draft.budget - count, request.max_len - known - 1))]
        request.drafts = ()
        if not self._make_room(request, start + count + len(drafts)):
            drafts = ()
            count = min(count, self.kv.room(request) - start)
            if count <= 0 or not self.kv.advance(request, start + count):
                return
        end = start + count
        is_sampling = end == known and request.params.max_tokens != 0
        num_logits = 1 + len(drafts) if is_sampling else 0
        if request.is_scoring:
            num_logits = max(num_logits, end - max(start, request.num_scored))
        request.num_planned = end + len(drafts)
        request.num_placeholders += is_sampling
        request.planned_step = self._step
        count += len(drafts)
        draft.entries.append(PlanEntry(request, request.epoch, start, count, num_logits, is_sampling, drafts))
        draft.budget -= count
        if self.pace is not None:
            self.pace.add(start, count, num_logits, is_cut=is_cut)

    def _make_room(self, request: Request, end: int) -> bool:
        """Blocks for tokens [0, end), preempting those behind `request` not planned yet, the last one first."""
        while not self.kv.advance(request, end):
            for victim in reversed(self._running):
                if victim is request:
                    return False
                if victim.planned_step != self._step:
                    self._preempt(victim)
                    break
            else:
                return False
        return True

    def _make_way(self) -> None:
        """One less urgent and later request leaves when a more urgent one waits for its seat or its blocks."""
        head = self._waiting.peek() if self._waiting else None
        if head is None or not self._running:
            return
        last = self._running[-1]
        if last.priority > head.priority and last.order > head.order:
            has_seat = len(self._running) < self.config.max_num_seqs
            is_blocked = head is self._blocked_head and self._num_spare() < self._blocked_need
            if not has_seat or is_blocked:
                self._preempt(last)

    def _num_spare(self) -> int:
        """Free blocks that admission may promise, before those promised to running prefills."""
        return self.kv.pool.num_free - self._watermark

    def _preempt(self, request: Request) -> None:
        self._running.remove(request)
        self._release(request)
        request.status = Status.WAITING
        request.num_preemptions += 1
        self._num_preemptions += 1
        self._waiting.push(request)

    # -- commit --------------------------------------------------------------------------------------------------------

    def _commit_chunk(self, request: Request, entry: PlanEntry, outputs: list[StepOutput]) -> None:
        """A piece of a prompt was computed and nothing sampled."""
        if request.epoch != entry.epoch:
            return
        end = request.num_computed = entry.start + entry.num_tokens
        request.num_scored = max(request.num_scored, min(end, request.num_prompt))
        self.kv.commit(request)
        if request.params.max_tokens == 0 and end >= request.num_prompt:
            self._free_followers(request)
            self._end(request, "length")
            outputs.append(StepOutput(request.request_id, request.choice, [], request.num_cached, "length"))

    def _free_followers(self, request: Request) -> None:
        """The prompt is computed (or will never be): its other choices may be admitted and share its blocks."""
        followers, request.followers = request.followers, []
        for follower in followers:
            self._num_held -= 1
            if follower.status is Status.WAITING:
                self._waiting.push(follower)

    def _end(self, request: Request, reason: FinishReason, is_sound: bool = True) -> None:
        if request.status is Status.RUNNING:
            self._running.remove(request)
            self._release(request, is_sound)
            request.status = Status.FINISHED
        else:
            request.status = Status.FINISHED
            if request.leader is None or request not in request.leader.followers:
                self._waiting.discard()
        request.finish_reason = reason
        self._free_followers(request)
        choices = self._requests[request.request_id]
        if all(choice.status is Status.FINISHED for choice in choices):
            del self._requests[request.request_id]

    def _release(self, request: Request, is_sound: bool = True) -> None:
        self._released.append((request, request.epoch))
        self.kv.release(request, is_sound)
