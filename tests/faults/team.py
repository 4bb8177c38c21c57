"""Faults of the thread team: denormals, and what the caller's thread gets back."""

from __future__ import annotations

from tests.faults.fault import Fault

TEAM, WAIT = "csrc_common/exec/team.h", "csrc_common/exec/wait.h"
TESTS = "tests/kernels/test_denormals.py::"

FAULTS = [
    Fault(
        "denormals_kept_everywhere",
        WAIT,
        "| 0x8040u",
        "| 0x0000u",
        TESTS + "test_denormals_count_as_zero",
        "one",
        is_quick=True,
    ),
    Fault(
        "denormals_read_but_not_written_as_zero",
        WAIT,
        "| 0x8040u",
        "| 0x0040u",
        TESTS + "test_denormals_count_as_zero",
        "one",
    ),
    Fault(
        "denormals_kept_by_helpers",
        TEAM,
        "void serve(int thread) {\n    FlushDenormals flush;",
        "void serve(int thread) {",
        TESTS + "test_every_thread_of_a_team_flushes",
        "test",
        is_quick=True,
    ),
    Fault(
        "traps_of_the_caller_kept",
        WAIT,
        "_mm_setcsr(0x1F80u | 0x8040u)",
        "_mm_setcsr(saved_ | 0x8040u)",
        TESTS + "test_a_caller_that_traps_invalid_operations_is_not_killed_by_ours",
        "one",
    ),
    Fault(
        "caller_left_flushing",
        WAIT,
        "~FlushDenormals() {\n#if defined(__x86_64__)\n    _mm_setcsr(saved_);",
        "~FlushDenormals() {\n#if defined(__x86_64__)",
        TESTS + "test_the_caller_keeps_its_own_denormals",
        "test",
    ),
]
