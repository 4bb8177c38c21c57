"""Inner loops are found by what ran; llvm-mca's model is asked about what most of their rounds execute."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.arm import loops, page

LISTING = """
program: file format elf64-littleaarch64
0000000000000100 <f>:
     100:      \tmov\tx0, #0x5                   // =5
     104:      \tldr\tq0, [x1], #16
     108:      \tcbz\tx2, 0x110 <f+0x10>
     10c:      \tprfm\tpldl2keep, [x1]
     110:      \tsubs\tx3, x3, #1
     114:      \tb.ne\t0x104 <f+0x4>
     118:      \tadrp\tx4, 0x400000
     11c:      \tsubs\tx0, x0, #1
     120:      \tb.ne\t0x100 <f>
     124:      \tret
"""
EXECUTED = {0x100: 5, 0x104: 40, 0x108: 40, 0x10C: 4, 0x110: 40, 0x114: 40, 0x118: 5, 0x11C: 5, 0x120: 5, 0x124: 1}


def test_the_innermost_loop_that_ran_is_found() -> None:
    (found,) = loops.inner_loops(loops.parsed(LISTING.splitlines()), EXECUTED)
    assert (found.first, found.last, found.rounds, found.executed) == (0x104, 0x114, 40, 164)
    assert found.body == ("ldr q0, [x1], #16", "cbz x2, 0x110", "subs x3, x3, #1", "b.ne 0x104")  # few rounds prefetch


def test_a_loop_that_did_not_run_is_none() -> None:
    code = loops.parsed(LISTING.splitlines())
    once = {**EXECUTED, **dict.fromkeys(range(0x104, 0x118, 4), 0)}
    assert [(found.first, found.last) for found in loops.inner_loops(code, once)] == [(0x100, 0x120)]
    assert loops.inner_loops(code, dict.fromkeys(EXECUTED, 1)) == []


def test_predicates_and_comments_are_told_apart() -> None:
    lines = [
        "  100: ld1b {z3.b}, p0/z, [x9]",
        "  104: b.ne 0x100 <name+0x4>  // b.any",
        "  108: fmla z7.s, p0/m, z3.s, z4.s",
    ]
    assert loops.parsed(lines) == {
        0x100: "ld1b {z3.b}, p0/z, [x9]", 0x104: "b.ne 0x100", 0x108: "fmla z7.s, p0/m, z3.s, z4.s",
    }  # fmt: skip


def test_loops_that_call_are_left_out() -> None:
    code = {0x100: "bl 0x200", 0x104: "b.ne 0x100"}
    assert loops.inner_loops(code, {0x100: 9, 0x104: 9}) == []


def test_of_loops_that_overlap_the_busier_one_is_kept() -> None:
    code = {0x100: "nop", 0x104: "nop", 0x108: "b.ne 0x100", 0x10C: "b.ne 0x104"}
    (found,) = loops.inner_loops(code, {0x100: 9, 0x104: 30, 0x108: 30, 0x10C: 21})
    assert found.first == 0x104


def test_addresses_are_taken_out_for_the_assembler() -> None:
    body = ("tbz w0, #3, 0x1f00", "adrp x4, 0x400000", "b.ne 0x104", "add x0, x0, #1")
    assert list(loops.assembly(body)) == ["tbz w0, #3, #64", "adrp x4, #0", "b.ne #64", "add x0, x0, #1"]


def test_loops_alike_are_one_line() -> None:
    same: dict[str, Any] = {"label": "a", "level": "neon", "column": "x", "of_call": 0.4, "instructions": 9}
    same |= {"cpu": "n1", "cycles": 2.0, "median": 0.9}
    table = page.predictions([{**same, "loop": 0}, {**same, "loop": 1}], ["n1"])["arm_loops"]
    assert table.splitlines()[2:] == ["| `a` | neon | x | 40% | 9 | 2.0 (90%) |"]


def busiest_of(*uses: str) -> float:
    """Of instructions that use these of four units V, V0 and V1 among them with groups of their own, and of two units L."""
    groups = [
        "V:4   XUnitV0, XUnitV1, XUnitV2, XUnitV3",
        "V0:1",
        "V1:1",
        "V2:1",
        "V3:1",
        "V01:2 XUnitV0, XUnitV1",
        "L:2",
    ]
    groups += ["V02:2   XUnitV0, XUnitV2"]
    lines = [f"[{i}]   - XUnit{group}" for i, group in enumerate(groups)]
    lines += [
        f" 1      2     0.50    *      U       2     {use}{' ' * 9}OP_{i}     op\tz0.s, z1.s"
        for i, use in enumerate(uses)
    ]
    return loops.busiest("\n".join(lines))


ANY, PAIR = "XUnitV", "XUnitV,XUnitV01"
FIRST = "XUnitV,XUnitV0,XUnitV01,XUnitV02"


def test_units_of_a_group_share_what_only_some_of_them_can_do() -> None:
    assert busiest_of(PAIR, *[ANY] * 7) == 2.0
    assert busiest_of(FIRST, *[PAIR] * 5, *[ANY] * 2) == 3.0


def test_units_that_instructions_have_to_themselves_bound_a_round() -> None:
    assert busiest_of(*[PAIR] * 3, *[ANY] * 3) == 1.5
    assert busiest_of(*[FIRST] * 3, PAIR) == 3.0
    assert busiest_of(PAIR, FIRST.replace(",", "[4],") + "[4]") == 4.0


def test_units_of_groups_that_overlap_bound_a_round_together() -> None:
    assert busiest_of(*[PAIR] * 3, *["XUnitV,XUnitV02"] * 3) == 2.0


def test_instructions_on_units_of_two_kinds_count_for_each() -> None:
    assert busiest_of(*["XUnitL,XUnitV[2],XUnitV01[2]"] * 2) == 2.0
    assert busiest_of(*["XUnitL[3],XUnitV"] * 2) == 3.0
    assert busiest_of() == 0.0


@pytest.mark.skipif(loops.missing() != "", reason="needs llvm-mca of LLVM 22")
def test_a_chain_of_dependent_steps_is_slower_than_its_limit() -> None:
    chain = ["fmla v0.4s, v0.4s, v0.4s"] * 8
    apart = [f"fmla v{i}.4s, v20.4s, v21.4s" for i in range(16)]
    slow, fast = loops.predicted(chain, "neoverse-n1"), loops.predicted(apart, "neoverse-n1")
    assert slow is not None and slow.share < 0.3
    assert fast is not None and fast.share > 0.9
    assert loops.predicted(["bfmlalb v0.4s, v1.8h, v2.8h"], "neoverse-n1") is None


@pytest.mark.skipif(loops.missing() != "", reason="needs llvm-mca of LLVM 22")
def test_instructions_of_a_part_of_the_units_bound_a_round() -> None:
    either = [f"mul z{i}.s, p0/m, z{i}.s, z24.s" for i in range(3)] + [f"and z{i}.d, z20.d, z21.d" for i in range(3, 6)]
    either += [f"lsl z{i}.s, z20.s, #3" for i in range(6, 9)]  # V0, V0 or V1, V1
    found = loops.predicted(either, "neoverse-v1")
    assert found is not None and found.limit == 4.5 and found.share > 0.9
