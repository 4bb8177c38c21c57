"""Sampling where the logits lie: the reference's bits for any parameters, logits left as they were, nothing else copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ci.gpu import missing
from numpy.typing import NDArray
from tests.cases.sample_rows import assert_same, plain, random_batch, random_logits
from tests.platforms.gpu import emulated_device
from tests.platforms.gpu.host_device import HostDevice, folder

from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.gpu.sampling import DeviceSampler
from octavo.platforms.reference.sample import sample

pytestmark = pytest.mark.skipif(bool(missing("host")), reason=missing("host"))
WAVES = (64, 32)


def sampler(wave: int) -> tuple[DeviceSampler, HostDevice]:
    device = HostDevice(wave)
    return DeviceSampler(GpuPlatform(device, folder(wave)).native), device


def assert_reference(made: DeviceSampler, logits: NDArray[np.float32], batch: Any) -> None:
    """On the device the reference's result, and the logits afterwards what they were."""
    on_device = made.upload(logits)
    assert_same(sample(logits, batch), made.sample(on_device, batch))
    assert on_device.array.tobytes() == logits.tobytes()


def unlisted(batch: Any) -> Any:
    """The same rows without bans, biases and penalties: those that are looked at in parts."""
    starts = {name: np.zeros_like(batch.count_start) for name in ("count_start", "bias_start", "banned_start")}
    return replace(batch, **starts)


@pytest.mark.parametrize("wave", WAVES)
@pytest.mark.parametrize("kind", ["normal", "ties", "odd"])
def test_random_parameters_give_the_references_bits(wave: int, kind: str) -> None:
    rng = np.random.default_rng(17)
    made, device = sampler(wave)
    for vocab in (4, 33, 257, 4095, 4096, 4097, 20_011):
        rows = int(rng.integers(1, 7))
        assert_reference(made, random_logits(rng, rows, vocab, kind), random_batch(rng, rows, vocab))
    assert device.launched["sample__simt"] >= 7
    device.check()


@pytest.mark.parametrize("filters", [
    {"top_k": 3000}, {"top_p": 0.4}, {"typical_p": 0.6}, {"top_k": 40_000, "top_p": 0.7, "typical_p": 0.9},
    {"num_logprobs": 2500},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("levels", [1, 3])
def test_a_place_in_the_order_that_thousands_share_is_cut_by_id(filters: dict[str, float], levels: int) -> None:
    """More equals than the list in shared memory holds."""
    rng = np.random.default_rng(levels)
    logits = rng.integers(0, levels, (2, 50_000)).astype(np.float32) * np.float32(0.5)
    made, _ = sampler(64)
    assert_reference(made, logits, plain(2, **filters))


@pytest.mark.parametrize("filters", [{"top_k": 9000}, {"top_p": 0.999}, {"typical_p": 0.5}], ids=str)
def test_values_closer_than_a_bucket_are_told_apart(filters: dict[str, float]) -> None:
    rng = np.random.default_rng(5)
    logits = (rng.random((2, 20_000)) * 0.01).astype(np.float32)
    made, _ = sampler(32)
    assert_reference(made, logits, plain(2, num_logprobs=3, **filters))


@pytest.mark.parametrize("temperature", [0.0, 1e-38, 0.8])
def test_huge_values_stay_finite(temperature: float) -> None:
    logits = np.array([[np.inf, 3.4e38, -3.4e38, 1e-40, -0.0, 0.0, np.nan, -np.inf]], np.float32)
    made, _ = sampler(64)
    for filters in ({}, {"top_k": 5}, {"top_p": 0.9}, {"typical_p": 0.9}, {"min_p": 0.5}):
        assert_reference(made, logits, plain(1, temperature=temperature, num_logprobs=8, **filters))


def test_a_step_that_wants_no_token_draws_none() -> None:
    made, device = sampler(64)
    found = made.sample_host(np.zeros((0, 40), np.float32), plain(0))
    assert found.ids.shape == (0,) and found.best_ids.shape == (0, 0)
    assert "sample__simt" not in device.launched


def test_plain_rows_read_their_logits_once_and_filters_at_most_twice_more() -> None:
    """By the emulator's count of bytes: what a longer vocabulary adds to it."""
    if reason := missing("rocm") or emulated_device.missing():
        pytest.skip(reason)
    from ci.gpu import Target, build

    device = emulated_device.EmulatedDevice("gfx950", 2)
    made = DeviceSampler(GpuPlatform(device, build(Target("rocm", "gfx950"))).native)
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal((1, 12_288)) * 3).astype(np.float32)
    for filters, most in ({}, 1), ({"top_p": 0.9}, 4), ({"top_k": 40, "top_p": 0.9}, 6), ({"typical_p": 0.9}, 6):
        batch, loaded = plain(1, **filters), []
        for vocab in (4096, 12_288):
            assert_same(sample(logits[:, :vocab], batch), made.sample_host(logits[:, :vocab], batch))
            loaded.append(device.stats[-1][2].bytes["global_load"])
        assert loaded[1] - loaded[0] < (most + 0.1) * 4 * 8192, (filters, loaded)


def test_a_result_does_not_depend_on_how_many_blocks_look_at_a_row() -> None:
    rng = np.random.default_rng(23)
    logits, batch = random_logits(rng, 3, 30_000, "ties"), random_batch(rng, 3, 30_000)
    batch = replace(batch, temperature=np.array([0, 1, 0.7], np.float32), top_k=np.array([0, 0, 50], np.int32))
    blocks = []
    for num_units in (1, 5, 40):
        device = HostDevice(64, num_units)
        made = DeviceSampler(GpuPlatform(device, folder(64)).native)
        assert_same(sample(logits, batch), made.sample_host(logits, batch))
        assert_same(sample(logits, bare := unlisted(batch)), made.sample_host(logits, bare))
        blocks.append(device.launched["sample__simt"])
    assert blocks == [6, 6 + 6 * 3, 6 + 6 * 7]
