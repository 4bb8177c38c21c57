"""The engine without its walls: a model on a platform, scheduler, runner; messages in, outputs out, one step at a time.

`EngineCore` is what the in-process `LLM` and the engine process both drive:

    core.add(AddRequest) -> None | RequestError          core.step() -> [RequestOutput]
    core.abort(id), core.finish(id, choice)              core.has_work, core.stats(), core.abort_all(reason)

A failing step ends the requests of that step with an error, and where it cannot be told which they are, all of them. The
engine goes on; EngineDeadError when it cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from octavo.engine.cost import CostModel
from octavo.engine.cost_store import CostKeeper
from octavo.engine.errors import EngineDeadError, RequestError
from octavo.engine.kv.groups import GroupKind as BlockKind
from octavo.engine.kv.groups import GroupSpec
from octavo.engine.kv.manager import KVManager
from octavo.engine.messages import (
    NO_TOKEN_ALLOWED,
    AddRequest,
    EngineInfo,
    RequestOutput,
    StepOutputs,
    TokenLogprobs,
)
from octavo.engine.pace import Pace
from octavo.engine.plan import StepOutput, StepPlan
from octavo.engine.request import Request
from octavo.engine.runner import Runner, StepResult
from octavo.engine.sampling_params import MAX_CHOICES, check_token_ids
from octavo.engine.scheduler import Scheduler, SchedulerConfig
from octavo.engine.waiting import Policy, fcfs, priority
from octavo.platforms.types import GroupKind, KVSpec

if TYPE_CHECKING:
    from octavo.engine.build import Keeper

POLICIES: dict[str, Callable[[], Policy]] = {"fcfs": lambda: fcfs, "priority": priority}


def group_specs(spec: KVSpec) -> list[GroupSpec]:
    """The scheduler's view of a model's KV groups."""
    return [
        GroupSpec(BlockKind.SLIDING_WINDOW, group.window) if group.kind is GroupKind.SLIDING else GroupSpec()
        for group in spec.groups
    ]


NO_TOKEN = -1


class EngineCore:
    """One model being served. Not thread-safe: one loop owns it."""

    frame = StepOutputs

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        info: EngineInfo,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = runner
        self.scheduler = scheduler
        self.info = info
        self._clock = clock
        self._eos = frozenset(info.eos_ids)
        # Of prompts scored in part; no entry outlives its request.
        self._prompt_scores: dict[tuple[str, int], list[TokenLogprobs | None]] = {}
        self._unsent: list[RequestOutput] = []  # of a step that its caller interrupted
        self.keeper: Keeper | None = None  # of packed weights, where there may be some to keep
        self.cost: CostModel | None = None  # learns from every step but the first, which touches its pages first
        self.cost_keeper: CostKeeper | None = None
        self.num_late = 0  # steps that kept running streams waiting longer than they should
        self.num_steps = 0
        self.num_generated = 0
        self.step_s = 0.0

    def add(self, message: Any) -> None:
        """Validates and queues a request. RequestError (and its kinds) if it cannot be taken."""
        if not isinstance(message, AddRequest):
            raise RequestError("this model gives tokens, not vectors", code="unsupported_endpoint")
        message.params.validate(self.info.vocab_size)
        check_token_ids("prompt", message.prompt, self.info.vocab_size)
        if not 0 <= message.choice < MAX_CHOICES:  # it keys the noise of the draws, in 32 bits
            raise RequestError(f"choice is {message.choice}; it must be in [0, {MAX_CHOICES})", param="choice")
        request = Request(
            message.request_id,
            message.prompt,
            message.params,
            eos_ids=self._eos,
            priority=message.priority,
            arrival_s=message.arrival_s or self._clock(),
            salt=message.salt,
            choice=message.choice,
        )
        self.scheduler.add(request, message.leader or None)

    def abort(self, request_id: str) -> bool:
        """Frees everything of a request now; False when it is not here (any more)."""
        self._forget(request_id)
        self._unsent = [output for output in self._unsent if output.request_id != request_id]
        return self.scheduler.abort(request_id)

    def abort_all(self, reason: str) -> list[RequestOutput]:
        """Frees everything of every request; an output for each choice that had not finished, with `reason` as its error."""
        return self._ended(self.scheduler.abort_all(), "abort", reason, "aborted")

    def finish(self, request_id: str, choice: int | None = None) -> bool:
        """Ends one choice (None: all) whose text is complete; False when it has already ended."""
        self._forget(request_id, choice)
        return self.scheduler.finish(request_id, "stop", choice)

    def undeliverable(self, output: RequestOutput, why: str) -> RequestOutput:
        """What is said instead of an output that no frame holds; its request ends."""
        self.abort(output.request_id)
        text = f"{why}; ask for fewer logprobs or a shorter prompt"
        return RequestOutput(output.request_id, [], "error", error=text, choice=output.choice)

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._unsent)

    @property
    def is_idle(self) -> bool:
        """No request is open."""
        return not self.has_work

    def step(self) -> list[RequestOutput]:
        """One plan, run and committed."""
        if self._unsent:
            outputs, self._unsent = self._unsent, []
            return outputs
        start = self._clock()
        plan: StepPlan | None = None
        try:
            plan = self.scheduler.plan()
            result = self.runner.run(plan)
            outputs = self._dead_ends(plan, result)
            outputs += self._outputs(plan, result, self.scheduler.commit(plan, result.tokens))
        except BaseException as error:
            outputs = self._fail(plan, error)
            if not isinstance(
                error, Exception
            ):  # an interrupt is the caller's; the requests hear of it in the next step
                self._unsent = outputs
                raise
            return outputs
        self._account(plan, self._clock() - start)
        return outputs

    def _account(self, plan: StepPlan, seconds: float) -> None:
        """A step took so long."""
        self.num_steps += 1
        self.step_s += seconds
        pace = self.scheduler.pace
        if pace is not None and pace.is_limiting and seconds > pace.itl_s:
            self.num_late += 1
        if self.cost is not None and self.num_steps > 1:
            self.cost.observe(self.cost.work([(e.start, e.num_tokens, e.num_logits) for e in plan.entries]), seconds)

    def rest(self, *, is_last: bool = False) -> None:
        """There is time now for what is not urgent. `is_last`: no step will follow."""
        if self.cost is not None and self.cost_keeper is not None:
            self.cost_keeper.save(self.cost, is_last=is_last)

    def stats(self) -> dict[str, float]:
        """Gauges and counters by name; `engine/server/metrics.py` says what each is called outside."""
        s = self.scheduler.stats()
        return {
            "num_requests_running": s.num_running,
            "num_requests_waiting": s.num_waiting,
            "kv_cache_usage_perc": s.num_used_blocks / max(s.num_blocks, 1),
            "kv_blocks": s.num_blocks,
            "kv_blocks_used": s.num_used_blocks,
            "kv_blocks_cached": s.num_cached_blocks,
            "kv_blocks_evicted": s.num_evicted_blocks,
            "prefix_cache_queries": s.num_prompt_tokens,
            "prefix_cache_hits": s.num_cached_tokens,
            "num_preemptions": s.num_preemptions,
            "num_aborts": s.num_aborted,
            "num_steps": self.num_steps,
            "num_generated": self.num_generated,
            "step_seconds": self.step_s,
            "itl_target_seconds": 0.0 if self.scheduler.pace is None else self.scheduler.pace.itl_s,
            "num_late_steps": self.num_late,
            **({} if self.cost is None else self.cost.stats()),
        }

    # -- outputs -----------------------------------------------------------------------------------------------------
    def _outputs(self, plan: StepPlan, result: StepResult, committed: list[StepOutput]) -> list[RequestOutput]:
        places = {(e.request.request_id, e.request.choice): i for i, e in enumerate(plan.entries)}
        for place, scores in result.prompt_logprobs.items():
            request = plan.entries[place].request
            self._prompt_scores.setdefault((request.request_id, request.choice), [None]).extend(scores)
        outputs = []
        for item in committed:
            key = (item.request_id, item.choice)
            tokens, stop_id = item.token_ids, -1
            logprobs = result.logprobs[places[key]]
            if item.stop_id is not None:
                stop_id, tokens = item.stop_id, tokens[:-1]
            self.num_generated += len(item.token_ids)
            outputs.append(
                RequestOutput(
                    item.request_id,
                    tokens,
                    item.finish_reason or "",
                    stop_id,
                    logprobs[: len(item.token_ids)] if logprobs is not None else None,
                    self._prompt_scores.pop(key, None),
                    item.num_cached,
                    "",
                    item.choice,
                )
            )
        return outputs

    def _dead_ends(self, plan: StepPlan, result: StepResult) -> list[RequestOutput]:
        """Rows from which no token may come (masks and bans left none) end with an error of their own."""
        outputs = []
        for place, entry in enumerate(plan.entries):
            if NO_TOKEN in result.tokens[place]:
                request = entry.request
                result.tokens[place] = []
                result.prompt_logprobs.pop(place, None)
                self._forget(request.request_id, request.choice)
                self.scheduler.finish(request.request_id, "error", request.choice)
                text, code = _why_no_token(request)
                outputs.append(
                    RequestOutput(request.request_id, [], "error", error=text, choice=request.choice, code=code)
                )
        return outputs

    def _fail(self, plan: StepPlan | None, error: BaseException) -> list[RequestOutput]:
        """The step broke: its requests end with an error, everyone else goes on. Without a plan it is not known whose step
        it was; then all end."""
        text = f"the engine could not run this step: {type(error).__name__}: {error}"
        try:
            if plan is not None:
                self.runner.release(plan)
                self.scheduler.fail(plan)
                return self._ended(plan.requests, "error", text, "engine_error")
            outputs = self._ended(self.scheduler.abort_all(), "error", text, "engine_error")
            left = self.scheduler.stats()
            if left.num_running or left.num_waiting or left.num_used_blocks:
                raise RuntimeError("requests that have ended still hold blocks or places")
            return outputs
        except Exception as second:
            raise EngineDeadError(f"{text}; and it cannot go on: {second}") from error

    def _ended(self, requests: list[Request], reason: str, error: str, code: str) -> list[RequestOutput]:
        """The last outputs of choices that have been ended."""
        for request in requests:
            self._forget(request.request_id, request.choice)
        return [RequestOutput(r.request_id, [], reason, error=error, choice=r.choice, code=code) for r in requests]

    def _forget(self, request_id: str, choice: int | None = None) -> None:
        """Lets go of what was scored of a prompt: of one choice, or of all."""
        for key in [key for key in self._prompt_scores if key[0] == request_id and choice in (None, key[1])]:
            del self._prompt_scores[key]


def _why_no_token(request: Request) -> tuple[str, str]:
    """Message and code for a row without any token to take: the request's own doing, or logits that are not numbers."""
    params = request.params
    is_limited = params.allowed_token_ids is not None or params.bad_words or params.logit_bias or params.min_tokens
    if is_limited or request.mask is not None:
        text = "no token is allowed here: the request's masks, bans and biases leave none; loosen them"
        return text, NO_TOKEN_ALLOWED
    return "the model's logits hold no finite number: its weights or its description are damaged", "engine_error"


def make_scheduler(
    spec: KVSpec,
    *,
    num_blocks: int,
    max_model_len: int,
    max_batch_tokens: int,
    max_num_seqs: int,
    max_queue: int,
    policy: str,
    has_prefix_cache: bool,
    has_partial_reuse: bool,
    model_identity: bytes,
    server_secret: bytes,
    pace: Pace | None = None,
) -> Scheduler:
    """A scheduler over a fresh pool."""
    kv = KVManager(
        group_specs(spec),
        num_blocks,
        spec.block_tokens,
        model_identity=model_identity,
        server_secret=server_secret,
        has_prefix_cache=has_prefix_cache,
        has_partial_reuse=has_partial_reuse,
    )
    config = SchedulerConfig(
        max_batch_tokens=max_batch_tokens, max_num_seqs=max_num_seqs, max_model_len=max_model_len, max_waiting=max_queue
    )
    return Scheduler(config, kv, policy=POLICIES[policy](), pace=pace)
