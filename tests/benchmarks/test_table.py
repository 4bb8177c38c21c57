"""The best peer of a cell is found whichever way is better, ratios above 1 mean we are faster, gaps are shown as gaps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import grid, processes, table
from benchmarks.cells import Cell, Lengths, parse_cell
from benchmarks.common import Samples
from benchmarks.contenders import ENGINES, OURS, WIDTHS, Contender, chosen
from benchmarks.grid import Entry, Found, Grid, Setting
from benchmarks.limits import best_ops
from benchmarks.models import FORMS
from benchmarks.processes import PEERS
from benchmarks.shapes import SHAPES

DECODE, START = (parse_cell(name, Lengths()) for name in ("decode.1", "start"))


def found(*values: float, other: float = 0.0) -> Found:
    return Found("1", Samples(list(values), [other] * len(values)))


def sheet(tmp_path: Path, *keys: str) -> table.Sheet:
    entries = []
    for key in keys:
        path = tmp_path / key.replace(":", "-")
        path.write_bytes(b"x" * 1000)
        name, _, form = key.partition(":")
        entries.append(Entry(Contender(ENGINES[name], form), path))
    return table.Sheet(SHAPES["smollm2"], "8", entries, {"read": 1e9, "int8__avx2": 1e12}, "")


def test_best_is_the_highest_rate_or_the_least_time() -> None:
    results = {(c.name, k): found(v) for c in (DECODE, START) for k, v in (("a", 1.0), ("b", 2.0))}
    results["decode.1", "c"] = Found(error="no")
    assert [table.best_of(results, cell, ["a", "b", "c"]) for cell in (DECODE, START)] == ["b", "a"]
    assert table.best_of(results, DECODE, ["c"]) == ""
    assert table.times_as_fast(DECODE, 4.0, 2.0) == table.times_as_fast(START, 1.0, 2.0) == 2.0


def test_row_compares_our_best_with_the_best_peer(tmp_path: Path) -> None:
    made = sheet(tmp_path, "octavo:q8_0", "llamacpp:q8_0", "vllm:w8a8")
    results = {
        ("decode.1", "octavo:q8_0"): found(9, 10, 11),
        ("decode.1", "llamacpp:q8_0"): found(4, 5, 6),
        ("decode.1", "vllm:w8a8"): Found(error="RuntimeError: out of memory"),
    }
    row = made.row(DECODE, results, 2)
    assert row is not None
    assert (row["name"], row["median"], row["peer"], row["times"]) == (
        "table.smollm2.8.decode.1",
        10,
        "llamacpp:q8_0",
        2.0,
    )
    assert row["all"]["vllm:w8a8"] == {"error": "RuntimeError: out of memory"}
    assert row["all"]["octavo:q8_0"]["of_limit"] > 0
    text = table.markdown("t", [row])
    assert "| decode.1 | tokens/s | **10** (9-11, n=3) " in text and "| - | llamacpp:q8_0 | **2.00** |" in text
    assert made.row(START, results, 2) is None


def test_row_without_ours_has_the_peers_values_and_no_ratio(tmp_path: Path) -> None:
    row = sheet(tmp_path, "llamacpp:q8_0").row(DECODE, {("decode.1", "llamacpp:q8_0"): found(5)}, 2)
    assert row is not None and row["by"] == "llamacpp:q8_0" and not {"times", "peer"} & row.keys()
    assert table.markdown("t", [row]).endswith("|  | - |")


def test_noise_is_marked_and_numbers_are_short() -> None:
    one = {"median": 1234.5, "min": 0.1234, "max": 99.99, "n": 3, "of_limit": 0.456}
    assert table.cell_text(one) == "**1234** (0.123-100, n=3) 46%"
    assert table.cell_text({"median": 1, "min": 1, "max": 1, "n": 1, "other_load": 0.2}).endswith("!")
    assert table.cell_text({"error": "x"}) == "-"


def test_peak_is_of_the_fitting_instruction() -> None:
    rates = {"read": 9e99, "f32__avx2": 1.0, "f32__avx512": 2.0, "bf16__avx512bf16": 3.0, "int8__avx512vnni": 4.0}
    rates["int8__amx"] = 5.0
    assert [best_ops(rates, width) for width in WIDTHS] == [3.0, 5.0, 5.0]
    assert [best_ops(rates, "8", level) for level in ("avx2", "avx512")] == [1.0, 4.0]
    assert best_ops({}, "8") == 0.0


def test_contenders_are_chosen_by_name_and_form() -> None:
    keys = lambda *names, **how: [one.key for one in chosen(names, **how)]  # noqa: E731
    assert keys("octavo", "vllm", "ctranslate2", width="4") == ["octavo:q4_0", "vllm:w4a16"]
    assert keys("octavo:q4_k", "octavo:q8_0", width="4") == ["octavo:q4_k"]
    assert keys("octavo", "vllm", "llamacpp-avx2", width="8", level="avx2") == ["octavo:q8_0", "llamacpp-avx2:q8_0"]
    for bad in ("nobody", "vllm:q8_0"):
        with pytest.raises(ValueError, match=r"has no form|no engine"):
            chosen([bad], "8")


def test_every_engine_has_a_program_and_forms_that_can_be_made() -> None:
    for engine in ENGINES.values():
        assert (PEERS / engine.script).is_file()
        assert {form for forms in engine.forms.values() for form in forms} <= FORMS.keys()
        assert set(engine.forms) <= set(WIDTHS)
    assert ENGINES[OURS].python(Path("/x")) == sys.executable
    assert ENGINES["vllm"].python(Path("/x")) == "/x/vllm/bin/python"


PROGRAM = """
import json, sys
rate, left = float(sys.argv[1].rsplit("-", 1)[1]), 3
print(json.dumps({"peer": "toy", "version": "1"}), flush=True)
for line in sys.stdin:
    command, left = json.loads(line), left - 1
    if rate == 7 and not left:
        sys.exit(5)
    if rate == 3 and command["new"] == 1:
        print(json.dumps({"error": "too long"}), flush=True)
        continue
    print(json.dumps({"seconds": 1 / rate, "window_tokens": rate, "window_seconds": 1}), flush=True)
"""


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    monkeypatch.setattr(processes, "PEERS", tmp_path)
    monkeypatch.setattr(grid, "PAUSE_S", 0.0)
    monkeypatch.setattr("benchmarks.common.OtherLoad.share", lambda self: 0.0)
    (tmp_path / "toy.py").write_text(PROGRAM)
    (tmp_path / "dead.py").write_text("raise SystemExit(4)")
    make: Any = lambda name, script: grid.Contender(grid_engine(name, script), "q8_0")  # noqa: E731
    return [
        Entry(make("two", "toy.py"), Path("m-2")),
        Entry(make("three", "toy.py"), Path("m-3")),
        Entry(make("dead", "dead.py"), Path("m-4")),
    ]


def grid_engine(name: str, script: str) -> Any:
    return ENGINES[OURS].__class__(name, script, "", {})


@pytest.mark.parametrize("is_apart", [False, True])
def test_grid_measures_all_and_keeps_reasons(entries: list[Entry], is_apart: bool) -> None:
    collected = Grid(Setting(Path("/none"), 2, 3, 10.0))
    cells: list[Cell] = [parse_cell(name, Lengths()) for name in ("prefill.100", "decode.4")]
    assert [cell.name for cell in collected.run(entries, cells, is_apart=is_apart)] == ["prefill.100", "decode.4"]
    results = collected.results
    assert results["prefill.100", "two:q8_0"].samples.values == [200.0] * 3
    assert results["decode.4", "three:q8_0"].samples.values == [3.0] * 3
    assert results["prefill.100", "three:q8_0"].error == "toy: too long"
    assert "status 4" in results["decode.4", "dead:q8_0"].error
    assert grid.median(results["decode.4", "dead:q8_0"]) is None


def test_call_without_time_for_turns_counts_once(entries: list[Entry]) -> None:
    collected = Grid(Setting(Path("/none"), 2, 3, 0.0))
    list(collected.run(entries[:1], [parse_cell("decode.4", Lengths())], is_apart=False))
    assert collected.results["decode.4", "two:q8_0"].samples.values == [2.0]


def test_others_go_on_when_one_ends_in_its_turn(entries: list[Entry]) -> None:
    collected = Grid(Setting(Path("/none"), 2, 3, 10.0))
    ending = Entry(Contender(grid_engine("ending", "toy.py"), "q8_0"), Path("m-7"))
    cells = [parse_cell(name, Lengths()) for name in ("decode.4", "decode.16")]
    list(collected.run([entries[0], ending], cells, is_apart=False))
    assert collected.results["decode.4", "two:q8_0"].samples.values == [2.0] * 3
    assert [collected.results[cell.name, "ending:q8_0"].samples.values for cell in cells] == [[], []]
    assert "status 5" in collected.results["decode.4", "ending:q8_0"].error
    assert collected.results["decode.16", "two:q8_0"].samples.values == [2.0] * 3
