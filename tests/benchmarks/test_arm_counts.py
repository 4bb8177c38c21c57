"""Counts of Arm instructions are those of qemu's log: blocks as listed when last translated, between the marks alone."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.arm import beside, build, page, trace
from benchmarks.arm.cases import cases, kernels

BEGIN, END = 0x100, 0x200


def listing(*addresses: int) -> str:
    rows = "".join(f"{at:#010x}:  d503201f  nop      \n" for at in addresses)
    return f"----------------\nIN: some_function\n{rows}\n"


def ran(at: int) -> str:
    return f"Trace 0: 0x7f08e3431b00 [0000000001009331/{at:016x}/00000001/00000200] some_function\n"


def lines(*parts: str) -> list[str]:
    return "".join(parts).splitlines(keepends=True)


MARKS = listing(BEGIN) + ran(BEGIN), listing(END) + ran(END)


def test_a_block_counts_as_often_as_it_ran() -> None:
    log = lines(
        ran(0x900), MARKS[0], listing(0x10, 0x14), ran(0x10), ran(0x10), listing(0x18), ran(0x18), MARKS[1], ran(0x10)
    )
    assert list(trace.regions(log, BEGIN, END)) == [Counter({0x10: 2, 0x14: 2, 0x18: 1})]


def test_a_block_translated_anew_counts_as_it_was_when_it_ran() -> None:
    log = lines(MARKS[0], listing(0x10, 0x14, 0x18), ran(0x10), listing(0x10, 0x14), ran(0x10), MARKS[1])
    assert list(trace.regions(log, BEGIN, END)) == [Counter({0x10: 2, 0x14: 2, 0x18: 1})]


def test_the_call_itself_is_taken_off() -> None:
    log = lines(
        MARKS[0], listing(0x10, 0x14), ran(0x10), ran(END), ran(BEGIN), ran(0x10), listing(0x40), ran(0x40), MARKS[1]
    )
    call, whole = trace.regions(log, BEGIN, END)
    assert trace.Executed(whole, sum(call.values())).total == 1


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (lines(MARKS[0], ran(0x10), MARKS[1]), "was not listed"),
        (lines(MARKS[0], listing(0x10), ran(0x10)), "ended inside"),
        (lines(MARKS[1]), "without its beginning"),
        (lines(MARKS[0], "Stopped execution of TB chain before 0x7f\n"), "left before its end"),
    ],
)
def test_a_log_that_cannot_be_counted_is_refused(log: list[str], said: str) -> None:
    with pytest.raises(trace.TraceError, match=said):
        list(trace.regions(log, BEGIN, END))


def test_every_kernel_of_products_and_attention_is_counted() -> None:
    counted = {op for op, level in kernels() if list(cases(op, level))}
    starts = ("linear_", "paged_attention_", "prepare_", "kv_append_")
    assert counted == {op for op, _ in kernels() if op.startswith(starts)} and len(counted) > 20


def test_work_is_that_of_the_sizes() -> None:
    found = {case.column: case.work for case in cases("linear_q6k", "dotprod")}
    assert found["64 x 512, 4"] == 64 * 512 * 4 and found["576 x 576, 1"] == 576 * 512
    decode = next(case for case in cases("paged_attention_bf16", "neon") if case.column == "decode 3:1")
    assert decode.work == 2 * 3 * 64 * 1024


def test_tables_go_where_the_page_has_a_place_for_them() -> None:
    found = [{"label": "linear_q6k", "level": "neon", "column": "1", "median": 0.5}]
    tables = page.counts(found, "{:.2f}".format)
    text = "a\n<!-- begin arm_products: written by x -->\nold\n<!-- end arm_products -->\nb\n"
    assert page.written(text, tables).splitlines()[4] == "| `linear_q6k` | neon | 0.50 |"
    with pytest.raises(KeyError, match="arm_products"):
        page.written("nothing", tables)


def test_every_match_has_a_kernel_of_ours_and_one_of_theirs_for_any_rows() -> None:
    for match in beside.MATCHES:
        found = beside.ours(match)
        assert found and {case.label for case in found} == {match.label}
        for case in found:
            assert any(beside.can_run(name, dict(case.sizes)["rows"]) for name in match.theirs)


def test_another_folder_than_kleidiai_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not KleidiAI"):
        beside.source_of(tmp_path, beside.MATCHES[0].theirs[0])


@pytest.mark.skipif(build.missing() != "", reason="needs the aarch64 compiler and qemu-user")
def test_a_loop_of_known_length_is_counted_exactly(tmp_path: Path) -> None:
    source = tmp_path / "loop.S"
    source.write_text(
        ".text\n.globl _start, count_begin, count_end\ncount_begin: ret\ncount_end: ret\nempty: ret\n"
        "loop: mov x0, #100\n1: subs x0, x0, #1\nnop\nb.ne 1b\nret\n"
        "_start: bl count_begin\nbl empty\nbl count_end\nbl count_begin\nbl loop\nbl count_end\n"
        "mov x0, #0\nmov x8, #93\nsvc #0\n"
    )
    assert shutil.which(build.COMPILER)
    program = tmp_path / "loop"
    subprocess.run([build.COMPILER, "-nostdlib", "-static", str(source), "-o", str(program)], check=True)
    assert trace.count(program, []).total == 1 + 3 * 100  # beyond the return, which the empty call has too
