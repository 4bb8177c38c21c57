"""What steps cost is found again by the next run of the same model here, and nothing odd in a file reaches a plan."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.golden import tiny

from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig
from octavo.engine.cost import CostModel
from octavo.engine.cost_store import MAX_MODELS, MIN_STEPS, CostKeeper, CostStore, Learned
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams

PRIOR = (1e-3, 1e-4, 1e-3, 1e-4, 1e-6, 1e-6, 1e-4)
FOUND = [2e-3, 3e-4, 2e-3, 3e-4, 1e-6, 4e-6, 1e-4]


def store(folder: Path, place: str = "chip, 2 threads") -> CostStore:
    return CostStore(folder / "costs", place)


def learned(terms: list[float] | None = None, at: float = 1.0, shares: list[float] | None = None) -> Learned:
    found = terms or FOUND
    return Learned("m", found, shares or [a / b for a, b in zip(found, PRIOR, strict=True)], 100, at)


def keeper(folder: Path, identity: bytes = b"me", prior: tuple[float, ...] = PRIOR) -> CostKeeper:
    return CostKeeper(store(folder), identity, "m", prior)


def steps(model: CostModel, count: int, seconds: float = 0.01) -> None:
    for i in range(count):
        model.observe(model.work([(i, 1, 1)]), seconds)


def test_a_model_starts_with_its_own_terms(tmp_path: Path) -> None:
    assert store(tmp_path).save(b"me", learned())
    model = keeper(tmp_path).open([0], 16)
    assert list(model.terms.values()) == pytest.approx(FOUND) and model.knee == 16
    work = model.work([(10, 1, 1)])
    model.observe(work, 3 * model.seconds(work))
    assert model.terms["step_few"] < 3 * FOUND[0], "a learned unit was thrown away after one step"


def test_another_model_starts_with_the_newest_shares(tmp_path: Path) -> None:
    store(tmp_path).save(b"old", learned([7 * term for term in FOUND], at=1.0))
    store(tmp_path).save(b"new", learned(at=2.0))
    prior = tuple(10 * term for term in PRIOR)
    model = keeper(tmp_path, b"other", prior).open([0], 0)
    assert list(model.terms.values()) == pytest.approx([10 * term for term in FOUND])


def test_shares_far_from_the_others_are_not_taken_over(tmp_path: Path) -> None:
    store(tmp_path).save(b"old", learned(shares=[1.0, 1.0, 1.0, 1.0, 1.0, 0.001, 300.0]))
    model = keeper(tmp_path, b"other").open([0], 0)
    wanted = [term * share for term, share in zip(PRIOR, [1, 1, 1, 1, 1, 0.25, 4], strict=True)]
    assert list(model.terms.values()) == pytest.approx(wanted)


def test_places_do_not_mix(tmp_path: Path) -> None:
    store(tmp_path).save(b"me", learned())
    assert store(tmp_path, "chip, 4 threads").models() == {}
    other = store(tmp_path, "chip, 4 threads")
    other.path.write_bytes(store(tmp_path).path.read_bytes())
    assert other.models() == {}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"version":1}', b'{"version":2,"place":"chip, 2 threads","models":{}}']
)
def test_a_file_that_is_not_one_counts_as_none(text: bytes, tmp_path: Path) -> None:
    place = store(tmp_path)
    place.save(b"me", learned())
    place.path.write_bytes(text)
    assert place.models() == {}
    assert tuple(keeper(tmp_path).open([0], 0).terms.values()) == pytest.approx(PRIOR)
    assert place.save(b"me", learned()) and list(place.models()) == [b"me".hex()]


@pytest.mark.parametrize("terms", [FOUND[:6], [0.0, *FOUND[1:]], [-1.0, *FOUND[1:]]])
def test_terms_that_cannot_be_are_left_out(terms: list[float], tmp_path: Path) -> None:
    store(tmp_path).save(b"bad", learned(terms, shares=list(FOUND)))
    store(tmp_path).save(b"good", learned())
    assert list(store(tmp_path).models()) == [b"good".hex()]


def test_the_oldest_models_leave(tmp_path: Path) -> None:
    for i in range(MAX_MODELS + 3):
        store(tmp_path).save(bytes([i]), learned(at=float(i)))
    assert list(store(tmp_path).models()) == [bytes([i]).hex() for i in range(3, MAX_MODELS + 3)]
    assert [path.name for path in (tmp_path / "costs").iterdir()] == [store(tmp_path).path.name]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "costs").write_text("in the way")
    model = keeper(tmp_path).open([0], 0)
    steps(model, MIN_STEPS)
    assert not keeper(tmp_path).save(model)


def test_writing_waits_until_it_is_worth_it(tmp_path: Path) -> None:
    keep = keeper(tmp_path)
    model = keep.open([0], 0)
    steps(model, MIN_STEPS - 1)
    assert not keep.save(model, is_last=True)
    steps(model, 1)
    assert keep.save(model) and not keep.save(model)
    steps(model, MIN_STEPS)
    assert not keep.save(model) and keep.save(model, is_last=True)
    kept = store(tmp_path).models()[b"me".hex()]
    assert kept.terms == pytest.approx(list(model.terms.values())) and kept.num_steps == 2 * MIN_STEPS


def test_the_place_names_what_times_depend_on(tmp_path: Path) -> None:
    platform = cast("Any", SimpleNamespace(name="x86", levels=("avx2", "avx512"), num_threads=3))
    place = CostStore.on(tmp_path, platform).place
    assert place.startswith("x86 avx2,avx512, 3 threads, ") and len(place) > len("x86 avx2,avx512, 3 threads, ")


def test_an_engine_goes_on_from_what_the_last_one_learned(tmp_path: Path) -> None:
    config = EngineConfig(
        str(tiny.write_safetensors("llama", tmp_path / "m")), num_threads=1, kv_bytes=1 << 22, max_num_seqs=4,
        cache_dir=str(tmp_path / "cache"), platform="reference",
    )  # fmt: skip
    first = build_core(config)
    assert first.cost is not None and first.cost.num_steps == 0, "the proving token taught something"
    first.add(AddRequest("a", [1, 2, 3], SamplingParams(max_tokens=2 * MIN_STEPS, ignore_eos=True, temperature=0.0)))
    while first.has_work:
        first.step()
    assert first.stats()["step_predicted_seconds"] > 0
    first.rest()
    second = build_core(config)
    assert second.cost is not None and second.cost.terms == pytest.approx(first.cost.terms)
    (file,) = (tmp_path / "cache/costs").iterdir()
    assert msgspec.json.decode(file.read_bytes())["models"]
