"""A model without tensors that notices every wrong KV slot, for scheduler tests.

The KV value of a token is a hash of all tokens up to it, as in a real model. Running an entry first checks, through the
block tables, that every slot the tokens' queries look at holds exactly that value; the next token is a function of it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

from octavo.engine.kv.groups import GroupKind, GroupSpec
from octavo.engine.kv.manager import KVManager
from octavo.engine.plan import PLACEHOLDER, StepOutput, StepPlan
from octavo.engine.request import Request
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import Scheduler, SchedulerConfig

VOCAB = 997
FULL = GroupSpec()


def chain(tokens: Sequence[int]) -> list[int]:
    """KV value of every position."""
    values, value = [], 17
    for token in tokens:
        value = (value * 1_000_003 + token * 7919 + 12345) % (1 << 61)
        values.append(value)
    return values


def next_token(tokens: Sequence[int], choice: int = 0) -> int:
    """What the model says after `tokens`."""
    return (chain(tokens)[-1] // 7 + choice * 31) % VOCAB


def expected_output(prompt: Sequence[int], count: int, stops: Sequence[int] = (), choice: int = 0) -> list[int]:
    """The answer, computed without any scheduler."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens, choice))
        if tokens[-1] in stops:
            break
    return tokens[len(prompt) :]


class FakeRunner:
    """Runs plans over slots held in a dictionary: (group, block) -> values."""

    def __init__(self, kv: KVManager) -> None:
        self.kv = kv
        self.slots: dict[tuple[int, int], list[int]] = {}
        self.num_tokens_run = 0
        self.num_steps = 0

    def run(self, plan: StepPlan) -> list[list[int]]:
        """Results of one step; AssertionError naming the request and position when a slot is wrong."""
        block_tokens = self.kv.block_tokens
        self.num_steps += 1
        for copy in plan.copies:
            source = self.slots.get((copy.group, copy.src), [])[: copy.num_tokens]
            self.slots.setdefault((copy.group, copy.dst), [-1] * block_tokens)[: copy.num_tokens] = source
        work = [(entry, entry.request.tokens[: entry.start] + entry.token_ids) for entry in plan.entries]
        for entry, tokens in work:
            values = chain(tokens)
            for g, table in enumerate(entry.request.tables):
                for p in range(entry.start, entry.start + entry.num_tokens):
                    block = table.ids[p // block_tokens]
                    assert block != 0 and self.kv.pool.refs(block) == 1, f"{entry.request} writes into block {block}"
                    self.slots.setdefault((g, block), [-1] * block_tokens)[p % block_tokens] = values[p]
        return [self._look(entry, tokens) for entry, tokens in work]

    def _look(self, entry, tokens: list[int]) -> list[int]:  # type: ignore[no-untyped-def]
        request, end = entry.request, entry.start + entry.num_tokens
        values, block_tokens = chain(tokens), self.kv.block_tokens
        self.num_tokens_run += entry.num_tokens
        for g, (spec, table) in enumerate(zip(self.kv.specs, request.tables, strict=True)):
            first = 0 if spec.is_full else max(0, entry.start - spec.window_tokens + 1)
            seen = [self.slots[g, table.ids[p // block_tokens]][p % block_tokens] for p in range(first, end)]
            assert seen == values[first:end], f"{request} reads wrong KV in group {g}"
        if not entry.is_sampling:
            return []
        known = len(tokens) - len(entry.drafts)
        sampled = [next_token(tokens[:known], request.choice)]
        for i, draft in enumerate(entry.drafts):
            if draft != sampled[-1]:
                break
            sampled.append(next_token(tokens[: known + i + 1], request.choice))
        return sampled


def run_all(
    scheduler: Scheduler,
    runner: FakeRunner,
    *,
    max_steps: int = 5000,
    each: Callable[[StepPlan, list[StepOutput]], object] | None = None,
) -> dict[tuple[str, int], list[int]]:
    """Step until nothing is left; tokens of every choice. AssertionError when it does not end."""
    answers: dict[tuple[str, int], list[int]] = {}
    for _ in range(max_steps):
        if not scheduler.has_work:
            return answers
        plan = scheduler.plan()
        outputs = scheduler.commit(plan, runner.run(plan))
        for output in outputs:
            answers.setdefault((output.request_id, output.choice), []).extend(output.token_ids)
        if each is not None:
            each(plan, outputs)
    raise AssertionError(f"still not done after {max_steps} steps: {scheduler.stats()}")


def run_late(runner: FakeRunner, plan: StepPlan) -> list[list[int]]:
    """Results of a plan that was made before the step before it was committed. A real runner mirrors the tables when the
    plan is made; here entries whose tables have ended since are answered without looking at them."""
    live = [e for e in plan.entries if e.epoch == e.request.epoch and not e.request.is_finished]
    assert all(PLACEHOLDER not in e.token_ids for e in live)
    ran = iter(runner.run(dataclasses.replace(plan, entries=live)))
    return [
        next(ran) if e in live else [next_token(e.request.tokens, e.request.choice)] if e.is_sampling else []
        for e in plan.entries
    ]


def check_conserved(scheduler: Scheduler, requests: Sequence[Request]) -> None:
    """Every block is free or held by a table, as often as tables name it."""
    pool = scheduler.kv.pool
    pool.check()
    held: dict[int, int] = {}
    for request in requests:
        for table in request.tables:
            for block in table.ids:
                if block:
                    held[block] = held.get(block, 0) + 1
    assert held == {b: pool.refs(b) for b in range(1, pool.num_blocks) if pool.refs(b)}


def window(tokens: int) -> GroupSpec:
    return GroupSpec(GroupKind.SLIDING_WINDOW, tokens)


def make(num_blocks=100, block_tokens=4, specs=(FULL,), policy=None, clock=None, cache=True, partial=True, **config):
    kv = KVManager(specs, num_blocks + 1, block_tokens, has_prefix_cache=cache, has_partial_reuse=partial)
    sizes = {"max_batch_tokens": 64, "max_num_seqs": 8, "max_model_len": 1000} | config
    extra = {} if policy is None else {"policy": policy}
    scheduler = Scheduler(SchedulerConfig(**sizes), kv, clock=clock or (lambda: 0.0), **extra)
    return scheduler, FakeRunner(kv)


def ask(name, prompt, max_tokens=8, eos_ids=(), **kwargs):
    fields = {k: kwargs.pop(k) for k in list(kwargs) if k in SamplingParams.__struct_fields__}
    return Request(name, prompt, SamplingParams(max_tokens=max_tokens, **fields), eos_ids=eos_ids, **kwargs)


def prompt_of(seed, length):
    return [random.Random(seed).randrange(997) for _ in range(length)]
