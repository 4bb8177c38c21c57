"""A request: what it derives from its parameters, and its choices."""

from __future__ import annotations

from octavo.engine.request import Request, Status
from octavo.engine.sampling_params import SamplingParams


def test_stop_ids_and_lengths_come_from_the_parameters():
    params = SamplingParams(max_tokens=5, min_tokens=2, stop_token_ids=[7])
    request = Request("r", [1, 2, 3], params, eos_ids=[9, 10])
    assert request.stop_ids == {7, 9, 10} and request.max_len == 8 and request.min_len == 5
    assert Request("r", [1], SamplingParams(ignore_eos=True, stop_token_ids=[7]), eos_ids=[9]).stop_ids == {7}


def test_seed_is_the_params_then_drawn():
    assert Request("r", [1], SamplingParams(seed=5)).seed == 5
    assert Request("r", [1], SamplingParams(seed=-1)).seed == 2**64 - 1
    assert Request("r", [1], SamplingParams(seed=5), seed=6).seed == 6
    drawn = {Request("r", [1], SamplingParams()).seed for _ in range(50)}
    assert len(drawn) == 50 and all(0 <= seed < 2**64 for seed in drawn)


def test_fork_shares_identity_and_seed_but_no_state():
    request = Request("r", [1, 2], SamplingParams(), salt=b"s", priority=3, hash_parts={0: b"x"}, eos_ids=[4])
    request.tokens.append(9)
    child = request.fork(2)
    assert child.tokens == [1, 2] and child.choice == 2 and child.seed == request.seed
    assert (child.salt, child.priority, child.hash_parts, child.eos_ids) == (b"s", 3, {0: b"x"}, {4})
    assert child.leader is request and request.followers == [child] and child.status is Status.WAITING


def test_reset_starts_a_new_epoch():
    request = Request("r", [1, 2], SamplingParams())
    epoch = request.epoch
    request.num_computed, request.block_keys = 2, [b"k"]
    request.reset_kv()
    assert request.epoch == epoch + 1 and request.num_computed == 0 and request.tables == []
    assert request.block_keys == [b"k"] and request.tokens == [1, 2]


def test_repr_shows_counts_and_no_tokens():
    request = Request("r", [123456, 2], SamplingParams())
    request.tokens.append(654321)
    assert repr(request) == "Request('r', choice=0, waiting, prompt=2, output=1, computed=0)"
    assert request.num_output == 1 and request.output_ids == [654321] and not request.is_finished
