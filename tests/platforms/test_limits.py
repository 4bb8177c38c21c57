"""Limits read from fake file trees: every container shape that once made an engine oversize itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from octavo.platforms import limits
from octavo.platforms.kernel_files import cpu_list, meminfo, number, pairs
from octavo.platforms.limits import GIB, read_limits

MIB = 1 << 20


def tree(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def host(root: Path, gib: int = 64, cpus: str = "0-15", available_gib: float | None = None) -> Path:
    available = int((gib if available_gib is None else available_gib) * MIB)
    return tree(
        root,
        {
            "proc/meminfo": f"MemTotal: {gib * MIB} kB\nMemFree: 1024 kB\nMemAvailable: {available} kB",
            "sys/devices/system/cpu/online": cpus,
        },
    )


def v2(root: Path, group: str, **files: object) -> Path:
    base = "sys/fs/cgroup"
    tree(root, {f"{base}/cgroup.controllers": "cpu memory cpuset", "proc/self/cgroup": f"0::{group}"})
    return tree(root, {f"{base}{group}/{name.replace('__', '.')}": value for name, value in files.items()})


def v1(root: Path, group: str, controller: str, **files: object) -> Path:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    with open(root / "proc/self/cgroup", "a") as file:
        file.write(f"4:{controller}:{group}\n")
    return tree(
        root, {f"sys/fs/cgroup/{controller}{group}/{name.replace('__', '.')}": value for name, value in files.items()}
    )


# -- memory -----------------------------------------------------------------------------------------------------------


def test_v2_limit_is_used_instead_of_host_memory(tmp_path):
    limits = read_limits(v2(host(tmp_path), "/app", memory__max=2 * GIB))
    assert limits.usable_memory == limits.memory_limit == 2 * GIB and limits.host_memory == 64 * GIB


def test_v2_max_means_no_limit(tmp_path):
    limits = read_limits(v2(host(tmp_path), "/app", memory__max="max"))
    assert limits.usable_memory == 64 * GIB and limits.memory_limit is None


def test_v1_unlimited_number_means_no_limit(tmp_path):
    limits = read_limits(v1(host(tmp_path), "/app", "memory", memory__limit_in_bytes=9223372036854771712))
    assert limits.usable_memory == 64 * GIB and limits.memory_limit is None


def test_v1_limit_and_page_cache(tmp_path):
    root = v1(
        host(tmp_path),
        "/docker/abc",
        "memory",
        memory__limit_in_bytes=4 * GIB,
        memory__usage_in_bytes=3 * GIB,
        memory__stat=f"inactive_file 1\ntotal_inactive_file {2 * GIB}",
    )
    limits = read_limits(root)
    assert limits.usable_memory == 4 * GIB and limits.free_memory == 3 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_on_the_parent_only_counts(tmp_path, version):
    root = host(tmp_path)
    if version == 2:
        v2(root, "/pod", memory__max=3 * GIB)
        v2(root, "/pod/container", memory__max="max")
    else:
        v1(root, "/pod", "memory", memory__limit_in_bytes=3 * GIB)
        v1(root, "/pod/container", "memory", memory__limit_in_bytes=9223372036854771712)
    assert read_limits(root).usable_memory == 3 * GIB


def test_v1_parent_outside_the_mount_is_seen_through_memory_stat(tmp_path):
    root = v1(
        host(tmp_path),
        "/c",
        "memory",
        memory__limit_in_bytes=9223372036854771712,
        memory__stat=f"hierarchical_memory_limit {3 * GIB}",
    )
    assert read_limits(root).usable_memory == 3 * GIB


def test_page_cache_is_not_used_memory(tmp_path):
    root = v2(
        host(tmp_path),
        "/app",
        memory__max=2 * GIB,
        memory__current=int(1.9 * GIB),
        memory__stat=f"anon 400000000\ninactive_file {int(1.5 * GIB)}\nactive_file 7",
    )
    limits = read_limits(root)
    assert limits.usable_memory == 2 * GIB
    assert limits.free_memory == pytest.approx(1.6 * GIB, abs=10)


def test_free_memory_is_the_least_over_levels_and_host(tmp_path):
    root = v2(host(tmp_path, available_gib=1.25), "/pod", memory__max=8 * GIB, memory__current=2 * GIB)
    assert read_limits(root).free_memory == int(1.25 * GIB)
    v2(root, "/pod", memory__current=int(7.5 * GIB))
    v2(root, "/pod/c", memory__max=4 * GIB, memory__current=GIB)
    assert read_limits(root).free_memory == GIB // 2


def test_memory_high_counts_as_a_limit(tmp_path):
    assert read_limits(v2(host(tmp_path), "/a", memory__max=4 * GIB, memory__high=3 * GIB)).usable_memory == 3 * GIB


def test_the_group_path_of_the_host_is_found_inside_a_container(tmp_path):
    root = v2(host(tmp_path), "", memory__max=2 * GIB)
    for text in ("0::/kubepods/pod1/c1", "0::/../../other", "0::/"):
        assert read_limits(root, pid_cgroup_text=text).usable_memory == 2 * GIB
    v2(root, "/inner", memory__max=GIB)
    assert read_limits(root, pid_cgroup_text="0::/kubepods/c1/inner").usable_memory == GIB


def test_both_versions_at_once(tmp_path):
    root = v1(host(tmp_path), "/a", "memory", memory__limit_in_bytes=5 * GIB)
    tree(root, {"sys/fs/cgroup/unified/cgroup.procs": "", "sys/fs/cgroup/unified/x/cpu.max": "200000 100000"})
    limits = read_limits(root, pid_cgroup_text="4:memory:/a\n0::/x")
    assert limits.usable_memory == 5 * GIB and limits.thread_budget == 2


def test_weights_kv_and_headroom_never_exceed_the_limit(tmp_path):
    root = v2(host(tmp_path), "/app", memory__max=2 * GIB, memory__current=GIB // 2)
    limits = read_limits(root)
    for weights in (0, GIB // 2, GIB, 3 * GIB):
        kv = limits.kv_budget(weights, headroom_bytes=GIB // 8)
        assert kv >= 0 and (kv == 0 or weights + kv + GIB // 8 <= limits.free_memory)
    assert limits.kv_budget(GIB, GIB // 8) == 3 * GIB // 8


# -- processors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("quota", "affinity", "threads", "most"),
    [
        ("200000 100000", None, 2, 2),
        ("765000 100000", None, 7, 8),
        ("50000 100000", None, 1, 1),
        ("max 100000", None, 16, 16),
        ("max 100000", {3, 5}, 2, 2),
        ("400000 100000", {1}, 1, 1),
    ],
)
def test_threads_follow_quota_and_affinity(tmp_path, version, quota, affinity, threads, most):
    root = host(tmp_path)
    if version == 2:
        v2(root, "/app", cpu__max=quota)
    else:
        value, period = quota.replace("max", "-1").split()
        v1(root, "/app", "cpu", cpu__cfs_quota_us=value, cpu__cfs_period_us=period)
    limits = read_limits(root, affinity)
    assert limits.thread_budget == limits.num_compute_threads == threads
    assert limits.most_threads == most


def test_the_smallest_quota_of_all_levels_counts(tmp_path):
    root = v2(host(tmp_path), "/pod", cpu__max="300000 100000")
    v2(root, "/pod/c", cpu__max="800000 100000")
    limits = read_limits(root)
    assert limits.cpu_quota == 3.0 and limits.thread_budget == 3
    assert any("/pod/cpu.max" in note for note in limits.notes)


@pytest.mark.parametrize("version", [1, 2])
def test_cpuset_and_affinity_are_intersected(tmp_path, version):
    root = host(tmp_path)
    if version == 2:
        v2(root, "/app", cpuset__cpus__effective="2-5,9")
    else:
        v1(root, "/app", "cpuset", cpuset__cpus="2-5,9")
    assert read_limits(root).allowed_cpus == (2, 3, 4, 5, 9)
    assert read_limits(root, {5, 9, 11}).allowed_cpus == (5, 9)


def test_a_cpuset_of_cpus_that_are_not_there_is_ignored(tmp_path):
    root = v2(host(tmp_path, cpus="0-1"), "/app", cpuset__cpus__effective="40-47")
    assert read_limits(root).allowed_cpus == (0, 1)


def test_two_hardware_threads_are_one_core(tmp_path):
    root = host(tmp_path, cpus="0-7")
    for cpu in range(8):
        tree(root, {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}"})
    limits = read_limits(root)
    assert (limits.thread_budget, limits.topology.num_cores) == (8, 4)
    assert read_limits(root, {1, 5, 6}).topology.num_cores == 2


def test_numa_nodes_show_only_allowed_cpus(tmp_path):
    root = host(tmp_path, cpus="0-7")
    tree(root, {"sys/devices/system/node/online": "0-1"})
    for node, cpus in enumerate(("0-3", "4-7")):
        tree(
            root,
            {
                f"sys/devices/system/node/node{node}/cpulist": cpus,
                f"sys/devices/system/node/node{node}/meminfo": f"Node {node} MemTotal:  {32 * MIB} kB",
            },
        )
    limits = read_limits(root, {2, 3, 4})
    assert [(n.index, n.cpus, n.memory_bytes) for n in limits.topology.nodes] == [
        (0, (2, 3), 32 * GIB),
        (1, (4,), 32 * GIB),
    ]
    assert len(read_limits(root, {6}).topology.nodes) == 1


def test_no_numa_directory_is_one_node(tmp_path):
    root = v2(host(tmp_path), "/app", memory__max=2 * GIB)
    limits = read_limits(root)
    assert [node.cpus for node in limits.topology.nodes] == [tuple(range(16))] and limits.usable_memory == 2 * GIB


def test_caches_huge_pages_and_throttling(tmp_path):
    root = v2(host(tmp_path), "/app", cpu__stat="usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500000")
    cache = "sys/devices/system/cpu/cpu0/cache"
    for i, (level, kind, size) in enumerate(
        [(1, "Data", "32K"), (1, "Instruction", "64K"), (2, "Unified", "512K"), (3, "Unified", "32M")]
    ):
        tree(root, {f"{cache}/index{i}/level": level, f"{cache}/index{i}/type": kind, f"{cache}/index{i}/size": size})
    tree(root, {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"})
    limits = read_limits(root)
    assert (limits.topology.l1d_bytes, limits.topology.l2_bytes, limits.topology.l3_bytes) == (
        32 << 10,
        512 << 10,
        32 << 20,
    )
    assert limits.thp == "madvise" and limits.num_throttled == 4 and limits.throttled_s == 2.5


def test_v1_throttling(tmp_path):
    root = v1(host(tmp_path), "/a", "cpu", cpu__stat="nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000")
    limits = read_limits(root)
    assert (limits.num_throttled, limits.throttled_s) == (3, 1.5)


def test_summary_is_one_line_with_the_numbers(tmp_path):
    root = v2(host(tmp_path), "/app", memory__max=2 * GIB, cpu__max="250000 100000")
    text = read_limits(root).summary()
    assert "\n" not in text
    assert "2.0 GiB usable" in text and "host 64.0 GiB" in text and "2 threads (quota 2.5, 16 of 16 CPUs" in text


@pytest.mark.parametrize("junk", ["", "x", "-", "max max max", "99999999999999999999999 0", "\x00\xff"])
def test_odd_files_limit_nothing_and_never_raise(tmp_path, junk):
    root = v2(host(tmp_path), "/app", memory__max=junk, cpu__max=junk, cpuset__cpus__effective=junk, cpu__stat=junk)
    tree(root, {"sys/devices/system/node/online": junk, "sys/kernel/mm/transparent_hugepage/enabled": junk})
    limits = read_limits(root)
    assert limits.usable_memory == 64 * GIB and limits.thread_budget >= 1 and len(limits.topology.nodes) == 1


def test_an_empty_root_gives_an_answer(tmp_path):
    limits = read_limits(tmp_path, {0, 1})
    assert limits.thread_budget == 2 and limits.host_memory == 0 and limits.free_memory == 0


def test_memory_is_known_where_proc_is_not_mounted(monkeypatch):
    known, text = read_limits(), limits.read_text
    monkeypatch.setattr(limits, "read_text", lambda path: "" if path == Path("/proc/meminfo") else text(path))
    found = read_limits()
    assert abs(found.host_memory - known.host_memory) < known.host_memory / 10
    assert 0 < found.free_memory <= found.usable_memory
    assert any("/proc/meminfo" in note for note in found.notes)


def test_cpu_lists():
    assert cpu_list("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert cpu_list("") == [] and cpu_list("a-b,3-") == [3]


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 5000, "--5", "0x10", "1e3", "-"])
def test_a_number_that_no_kernel_writes_says_nothing(text):
    assert number(text) is None and cpu_list(f"{text},3") == [3]
    assert meminfo(f"MemTotal: {text} kB\nMemFree: 1 kB") == {"MemFree": 1024} and pairs(f"max {text}\na 2") == {"a": 2}


def test_the_real_machine_is_read_fast():
    read_limits()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        limits = read_limits()
        times.append(time.perf_counter() - begin)
    # About 2 ms with 2 CPUs; the bound allows for a busy machine.
    assert min(times) < 0.02 * max(1, limits.num_online_cpus // 64)
    assert 0 < limits.free_memory <= limits.usable_memory <= limits.host_memory
    assert 1 <= limits.thread_budget <= limits.num_online_cpus


def test_a_limit_on_address_space_is_a_memory_limit(tmp_path):
    root = host(tmp_path)
    lines = "Limit  Soft Limit  Hard Limit  Units\nMax address space  {}  unlimited  bytes"
    tree(root, {"proc/self/limits": lines.format("unlimited"), "proc/self/statm": "1000 10 10 1 0 10 0"})
    assert read_limits(root).memory_limit is None
    tree(root, {"proc/self/limits": lines.format(2 * GIB)})
    limits = read_limits(root)
    assert limits.usable_memory == 2 * GIB
    assert limits.free_memory == 2 * GIB - 1000 * os.sysconf("SC_PAGE_SIZE")
