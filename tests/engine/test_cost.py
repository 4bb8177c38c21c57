"""Work is counted as kernels do it, predictions come to what steps take, and no step can break them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.engine.cost import RATIO_BOUNDS, TERMS, CostModel, expected_terms

#: seconds per unit of a small model on two cores: a step of one token takes 3 ms, a token of a chunk 0.8 ms
TRUE = (2e-3, 8e-4, 9e-3, 1e-4, 7e-7, 4e-7, 1.5e-4)
PRIOR = expected_terms(linear_ops=2e8, linear_bytes=1e8, head_ops=5e7, pair_ops=7e4, kv_bytes=23e3)
Entries = list[tuple[int, int, int]]


def known(terms: tuple[float, ...] = TRUE, **options: object) -> CostModel:
    return CostModel(terms, doubt=0.1, **options)  # type: ignore[arg-type]


def decodes(num: int, context: int) -> Entries:
    return [(context + 7 * i, 1, 1) for i in range(num)]


def random_step(rng: random.Random) -> Entries:
    """Some streams, and often a chunk."""
    entries = decodes(rng.randrange(9), rng.randrange(2000))
    if rng.random() < 0.6 or not entries:
        entries.append((rng.randrange(7000), rng.randrange(2, 300), rng.randrange(2)))
    return entries


def taught(
    model: CostModel, truth: CostModel, steps: list[Entries], rng: random.Random, noise: float = 0.03
) -> CostModel:
    for entries in steps:
        seconds = truth.seconds(truth.work(entries)) * math.exp(rng.gauss(0, noise))
        model.observe(model.work(entries), seconds)
    return model


@pytest.mark.parametrize("windows", [(0,), (0, 96), (64, 200)])
@pytest.mark.parametrize(("start", "count"), [(0, 1), (500, 1), (0, 2), (0, 64), (150, 33), (1000, 7)])
def test_pairs_are_those_that_attention_computes(windows: tuple[int, ...], start: int, count: int) -> None:
    model = known(windows=windows)
    work = model.work([(start, count, 0)])
    visible = [
        sum(min(position + 1, window or 1 << 62) for window in windows) / len(windows)
        for position in range(start, start + count)
    ]
    assert work.num_kv == visible[-1]
    assert work.num_pairs == pytest.approx(sum(visible[:-1]), rel=0.1, abs=1.5 * count)
    assert (work.num_tokens, work.num_chunks) == (count, int(count > 1))


@given(
    st.integers(0, 40),
    st.integers(0, 8000),
    st.integers(1, 600),
    st.integers(0, 1),
    st.floats(1e-4, 2),
    st.integers(0, 32),
)
def test_longest_is_the_largest_that_fits(
    num_streams: int, start: int, most: int, rows: int, within_s: float, knee: int
) -> None:
    model = known(knee=knee)
    streams = decodes(num_streams, 100)
    found = model.longest(model.work(streams), start, most, rows, within_s, is_sure=False)

    def fits(count: int) -> bool:
        work = model.work(streams)
        kv, pairs = model._chunk(start, count)
        return (
            model._seconds(
                work.num_tokens + count, work.num_kv + kv, work.num_pairs + pairs, work.num_rows + count * rows
            )
            <= within_s
        )

    assert found == max((count for count in range(1, most + 1) if fits(count)), default=0)


def test_sure_predictions_leave_room_for_what_they_were_off() -> None:
    model, rng = known(), random.Random(1)
    work = model.work(decodes(8, 100))
    longest = model.longest(work, 0, 500, 0, 0.03)
    steady = taught(known(), known(), [random_step(rng) for _ in range(200)], rng, noise=0.0)
    shaky = taught(known(), known(), [random_step(rng) for _ in range(200)], rng, noise=0.1)
    assert shaky.longest(work, 0, 500, 0, 0.03) < steady.longest(work, 0, 500, 0, 0.03)
    assert 0 < longest <= known().longest(work, 0, 500, 0, 0.03, is_sure=False)


@pytest.mark.parametrize("knee", [0, 16])
@pytest.mark.parametrize("scale", [0.02, 1.0, 300.0])
@pytest.mark.parametrize("lean", [(1, 1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 0.3, 3, 1), (2, 0.5, 1, 1, 3, 0.4, 2)])
def test_predictions_come_to_what_steps_take(knee: int, scale: float, lean: tuple[float, ...]) -> None:
    truth, rng = known(knee=knee), random.Random(3)
    start = [scale * term * factor for term, factor in zip(PRIOR, lean, strict=True)]
    model = taught(CostModel(start, knee=knee), truth, [random_step(rng) for _ in range(150)], rng)
    off = []
    for _ in range(200):
        work = model.work(random_step(rng))
        off.append(abs(model.seconds(work) / truth.seconds(work) - 1))
    assert sum(off) / len(off) < 0.08 and sorted(off)[190] < 0.25


def test_both_sides_of_the_knee_are_learned() -> None:
    truth, rng = known(knee=16), random.Random(5)
    model = taught(CostModel(PRIOR, knee=16), truth, [random_step(rng) for _ in range(300)], rng)
    before, after = ([(0, count, 0)] for count in (15, 16))
    assert model.seconds(model.work(before)) > 1.15 * model.seconds(model.work(after))


def test_a_machine_that_slows_down_is_followed() -> None:
    rng = random.Random(2)
    model = taught(CostModel(PRIOR), known(), [random_step(rng) for _ in range(500)], rng)
    slow = known(tuple(2 * term for term in TRUE))
    taught(model, slow, [random_step(rng) for _ in range(80)], rng)
    work = model.work([*decodes(8, 300), (1000, 20, 0)])
    assert model.seconds(work) == pytest.approx(slow.seconds(work), rel=0.12)


def test_what_no_step_showed_for_long_is_kept() -> None:
    rng = random.Random(2)
    model = taught(CostModel(PRIOR), known(), [random_step(rng) for _ in range(300)], rng)
    taught(model, known(), [decodes(8, 300 + i // 8) for i in range(5000)], rng)
    work = model.work([(2000, 200, 0)])
    assert model.seconds(work) == pytest.approx(known().seconds(work), rel=0.3)


def test_one_absurd_step_changes_little() -> None:
    rng = random.Random(4)
    model = taught(CostModel(PRIOR), known(), [random_step(rng) for _ in range(300)], rng)
    work = model.work([*decodes(8, 300), (1000, 20, 0)])
    before = model.seconds(work)
    model.observe(work, 1000 * before)
    assert before <= model.seconds(work) < 1.15 * before


@pytest.mark.parametrize("factor", [0.6, 1.6, 5.0])
def test_a_disturbed_decode_step_before_a_long_prompt_is_not_what_streams_are_held_for(factor: float) -> None:
    """It is the last one for hundreds of steps, all with small chunks beside streams that grow."""
    rng, truth = random.Random(6), known()
    model = taught(CostModel(PRIOR), truth, [random_step(rng) for _ in range(100)], rng)
    taught(model, truth, [decodes(8, 500 + i) for i in range(40)], rng)
    work = model.work(decodes(8, 540))
    model.observe(work, factor * truth.seconds(work))
    for i in range(600):
        entries = [*decodes(8, 541 + i), (7 * i, 6 + i % 3, 0)]
        taught(model, truth, [entries], rng)
    work = model.work(decodes(8, 1141))
    assert model.seconds(work) == pytest.approx(truth.seconds(work), rel=0.12)
    chunk = model.work([*decodes(8, 1141), (4200, 12, 0)])
    assert model.seconds(chunk) == pytest.approx(truth.seconds(chunk), rel=0.12)


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_term_that_starts_far_off_is_found_within_a_few_chunks(factor: float) -> None:
    rng, truth = random.Random(8), known((*TRUE[:5], 4e-6, TRUE[6]))
    model = known((*TRUE[:5], 4e-6 * factor, TRUE[6]))
    taught(model, truth, [decodes(8, 500 + i) for i in range(40)], rng)
    for i in range(24):
        taught(model, truth, [[*decodes(8, 541 + i), (600 + 12 * i, 12, 0)]], rng)
    work = model.work([*decodes(8, 565), (888, 12, 0)])
    assert model.seconds(work) == pytest.approx(truth.seconds(work), rel=0.12)


def test_room_for_late_steps_is_given_back_once_they_are_long_ago() -> None:
    model, truth = known(), known()
    work = model.work([*decodes(8, 500), (900, 12, 0)])
    before = model.longest(model.work(decodes(8, 500)), 900, 500, 0, 0.05)
    for factor in (1.6, 1.6, 1.6):
        model.observe(work, factor * truth.seconds(work))
    taught(model, truth, [[*decodes(8, 500), (900, 12, 0)]] * 100, random.Random(1), noise=0.0)
    wary = model.longest(model.work(decodes(8, 500)), 900, 500, 0, 0.05)
    taught(model, truth, [[*decodes(8, 500), (900, 12, 0)]] * 40, random.Random(1), noise=0.0)
    assert wary < before <= model.longest(model.work(decodes(8, 500)), 900, 500, 0, 0.05)


@settings(max_examples=60, deadline=None)
@example([(0, 0, 4, 5e-324)], 0)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 5000), st.integers(0, 400), st.floats(0, 1e9) | st.just(math.inf)),
        max_size=60,
    ),
    st.sampled_from([0, 16]),
)
def test_terms_stay_finite_and_positive(steps: list[tuple[int, int, int, float]], knee: int) -> None:
    model = CostModel(PRIOR, knee=knee)
    for streams, start, count, seconds in steps:
        entries = decodes(streams, start) + ([(start, count, 1)] if count else [])
        model.observe(model.work(entries), seconds)
        assert all(0 < term < math.inf for term in model.terms.values())
        assert model.longest(model.work(entries), start, 100, 0, 1.0) >= 0


def test_the_same_steps_give_the_same_terms() -> None:
    found = [
        taught(CostModel(PRIOR), known(), [random_step(rng) for _ in range(100)], rng).terms
        for rng in (random.Random(9), random.Random(9))
    ]
    assert found[0] == found[1] and tuple(found[0]) == TERMS


def test_nothing_is_learned_from_a_clock_that_stands_still() -> None:
    model = CostModel(PRIOR)
    model.observe(model.work(decodes(1, 5)), 0.0)
    model.observe(model.work([]), 1.0)
    assert model.num_steps == 0 and tuple(model.terms.values()) == pytest.approx(PRIOR)


def test_predicted_and_actual_are_counted_by_kind() -> None:
    model = known()
    work = model.work(decodes(8, 100))
    seconds = model.seconds(work)
    for factor in (1.0, 1.04, 1.15):
        model.observe(work, factor * model.seconds(work))
    stats = model.stats()
    assert stats["step_predicted_seconds"] == pytest.approx(3 * seconds, rel=0.1)
    counts = [stats[f"step_cost_ratio:decode:{bound}"] for bound in (*map(str, RATIO_BOUNDS), "+Inf")]
    assert sum(counts) == 3 and counts[RATIO_BOUNDS.index(1.05)] == 1 and counts[RATIO_BOUNDS.index(1.2)] == 1
    assert stats["step_cost_ratio:decode:sum"] == pytest.approx(3.19) and stats["step_cost_ratio:mixed:sum"] == 0
    assert stats["step_cost_term:kv"] == model.terms["kv"]


@pytest.mark.parametrize("terms", [(1.0,) * 6, (1.0,) * 6 + (0.0,), (1.0,) * 6 + (math.nan,)])
def test_terms_that_cannot_be_are_refused(terms: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="7 finite numbers"):
        CostModel(terms)
