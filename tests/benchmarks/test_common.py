"""Rows have the schema, ratios compare kept medians, turns alternate, noise is seen, and others' load is told from ours."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks import common
from benchmarks.common import OtherLoad, Peer, Samples, interleave, measure, read_bandwidth, report, row

from octavo.engine.server.commands.bench import REQUIRED, parse_row


def quiet(*values: float) -> Samples:
    return Samples(list(values), [0.0] * len(values))


def test_row_has_what_the_bench_command_requires() -> None:
    made = row("x", "s", [3.0, 1.0, 2.0], threads=2)
    assert [made[key] for key in ("min", "median", "max", "n")] == [1, 2, 3, 3]
    assert parse_row(json.dumps(made)) == made and set(REQUIRED) <= made.keys()
    assert {"cpu", "cpus", "threads", "commit"} <= made["machine"].keys()
    assert "peer" not in made and "is_noisy" not in made


def test_ratio_is_our_median_over_the_peers() -> None:
    made = row("x", "tokens/s", quiet(9, 10, 11), better="higher", peer=Peer("p", "1.2", quiet(4, 5, 6)))
    assert (made["ratio"], made["peer"], made["peer_version"], made["is_noisy"]) == (2.0, "p", "1.2", False)
    assert made["peer_spread"] == {"min": 4, "median": 5, "max": 6}


def test_noisy_repetitions_are_dropped_when_enough_are_quiet() -> None:
    samples = Samples([1, 2, 3, 100], [0.0, 0.05, 0.01, 0.5])
    made = row("x", "s", samples)
    assert (made["max"], made["n"], made["is_noisy"], made["other_load"]) == (3, 3, False, 0.05)


def test_rows_without_enough_quiet_repetitions_say_so() -> None:
    made = row("x", "s", Samples([5, 6, 7, 8], [0.9, 0.2, 0.3, 0.0]))
    assert (made["n"], made["is_noisy"], made["other_load"]) == (3, True, 0.3)
    assert (made["min"], made["max"]) == (6, 8)


def test_peers_noise_counts_too() -> None:
    made = row("x", "s", quiet(1, 1, 1), peer=Peer("p", "1", Samples([1, 1, 1], [0.2] * 3)))
    assert made["is_noisy"] and made["other_load"] == 0.2


@pytest.mark.parametrize("make", [lambda: row("x", "s", []), lambda: row("x", "s", [1.0], better="up")])
def test_senseless_rows_are_errors(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_turns_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherLoad, "share", lambda self: 0.0)
    order: list[str] = []
    calls = {name: (lambda name=name: order.append(name) or float(len(order))) for name in "ab"}
    found = interleave(calls, 3, warm=1)
    assert "".join(order) == "ab" + "abba" + "ab"
    assert found["a"].values == [3, 6, 7] and found["b"].values == [4, 5, 8]


def test_noisy_repetitions_are_repeated_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = iter([0.5, 0.0, 0.5, 0.0, 0.0, 0.9])
    monkeypatch.setattr(OtherLoad, "share", lambda self: next(shares))
    found = measure(lambda: 1.0, 3, warm=0)
    assert found.other == [0.5, 0.0, 0.5, 0.0, 0.0]
    monkeypatch.setattr(OtherLoad, "share", lambda self: 1.0)
    assert len(measure(lambda: 1.0, 50, budget_s=0.0, warm=0).values) == 3


def test_rounds_are_bounded_when_others_are_never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherLoad, "share", lambda self: 1.0)
    assert len(interleave({"a": lambda: 1.0}, 3, warm=0, max_rounds=4)["a"].values) == 4


def test_calls_without_a_value_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherLoad, "share", lambda self: 0.0)
    found = measure(lambda: time.sleep(0.01), 3, warm=0)
    assert all(0.01 <= value < 5 for value in found.values)


@pytest.fixture
def burner() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def test_own_children_are_not_others(burner: subprocess.Popen[bytes]) -> None:
    before = common.tree_seconds((os.getpid(),))
    alone = common.tree_seconds((burner.pid,))
    end = time.monotonic() + 10
    while common.tree_seconds((burner.pid,)) < alone + 0.2 and time.monotonic() < end:
        time.sleep(0.02)
    assert common.tree_seconds((os.getpid(),)) >= before + 0.2
    assert common.busy_seconds() > 0


def test_load_of_others_is_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, own, clock = iter([100.0, 104.0]), iter([10.0, 11.0]), iter([0.0, 2.0])
    monkeypatch.setattr(common, "busy_seconds", lambda: next(busy))
    monkeypatch.setattr(common, "tree_seconds", lambda roots: next(own))
    monkeypatch.setattr(common.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(common.os, "cpu_count", lambda: 2)
    load = OtherLoad()
    assert load.share() == pytest.approx((3 - 2 / common._TICKS) / 4)


def test_results_are_written_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    made = row("x", "s", [1.0])
    report([made], argparse.Namespace(save=False), "x")
    assert not (tmp_path / "results").exists()
    report([made, made], argparse.Namespace(save=True), "x")
    assert json.loads((tmp_path / "results/x.json").read_text()) == [made, made]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [made] * 3


def test_read_bandwidth_is_a_rate() -> None:
    assert 1e8 < read_bandwidth(1, 0.01) < 1e12


def test_rounding_keeps_significant_digits() -> None:
    assert [common.significant(value) for value in (0.000123456789, 123456.7, 0.0)] == [0.00012346, 123460.0, 0.0]


def test_a_benchmark_that_found_nothing_to_measure_fails() -> None:
    """Such as --only with a word that no kernel begins with."""
    with pytest.raises(SystemExit, match="counts: nothing fits"):
        report([], argparse.Namespace(save=False), "counts")
