"""What this process may really use: memory, CPU time, cores, NUMA nodes, caches. The only place that reads such limits.

A pure function of a file tree: `read_limits(root)` reads `root/proc` and `root/sys` and nothing else, so that every
container shape is a test. Sizes in bytes, CPU quota in cores, times in seconds. Sources: kernel documentation
admin-guide/cgroup-v2 (memory.max, memory.high, cpu.max, cpuset.cpus.effective, cpu.stat), cgroup-v1/memory and
scheduler/sched-bwc, ABI/stable/sysfs-devices-node, ABI/testing/sysfs-devices-system-cpu.

Rules:
  1. the smallest limit on the way from the process's group to the top counts, in both cgroup versions and in mixes
  2. page cache that the kernel drops without I/O (`inactive_file`) does not count as used
  3. what cannot be read limits nothing; an unreadable or odd file is never an error
  4. threads = floor(min(quota, cores allowed by affinity and cpuset)), at least 1; of threads asked for, no more are of use
     than ceil(min(quota, cores))
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

GIB = 1 << 30
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
CGROUP_MOUNT = "sys/fs/cgroup"
V1_MOUNTS = {"memory": ("memory",), "cpu": ("cpu", "cpu,cpuacct"), "cpuset": ("cpuset",)}


@dataclass(frozen=True)
class Node:
    """One NUMA node, with only the CPUs this process may run on."""

    index: int
    cpus: tuple[int, ...]
    memory_bytes: int


@dataclass(frozen=True)
class Limits:
    """Everything at one moment. None and 0 mean: not known, or no limit."""

    host_memory: int  # bytes of RAM
    memory_limit: int | None  # smallest cgroup limit, bytes
    usable_memory: int  # min(host_memory, memory_limit)
    free_memory: int  # bytes that can be taken now without swapping or being killed
    cpu_quota: float | None  # cores' worth of time
    allowed_cpus: tuple[int, ...]  # after affinity and cpuset
    num_online_cpus: int
    num_physical_cores: int  # among the allowed CPUs
    nodes: tuple[Node, ...]
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    thp: str  # transparent huge pages: always, madvise, never or "" (unknown)
    num_throttled: int  # periods in which the group ran out of its quota, since the group began
    throttled_s: float
    notes: tuple[str, ...] = field(default=())  # which files set the limits, for `doctor`

    @property
    def thread_budget(self) -> int:
        """Threads that may be busy at once in all of the process: compute, server and tokenizer together."""
        budget = len(self.allowed_cpus)
        if self.cpu_quota is not None:
            budget = min(budget, int(self.cpu_quota))
        return max(1, budget)

    @property
    def most_threads(self) -> int:
        """Threads that can make progress at the same moment; more of them only take time from each other."""
        most = len(self.allowed_cpus)
        if self.cpu_quota is not None:
            most = min(most, math.ceil(self.cpu_quota))
        return max(1, most)

    @property
    def num_compute_threads(self) -> int:
        """`thread_budget`, but one thread per physical core: two on one core share its vector units."""
        return max(1, min(self.thread_budget, self.num_physical_cores))

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    def kv_budget(self, weights_bytes: int, headroom_bytes: int) -> int:
        """Bytes left for KV when the weights are still to be loaded; weights + KV + head-room stay within the limit."""
        return max(0, min(self.usable_memory, self.free_memory) - weights_bytes - headroom_bytes)

    def summary(self) -> str:
        """One line for the log."""
        memory = f"memory {_gib(self.usable_memory)} usable, {_gib(self.free_memory)} free"
        if self.memory_limit is not None and self.memory_limit < self.host_memory:
            memory += f" (cgroup limit; host {_gib(self.host_memory)})"
        quota = "no quota" if self.cpu_quota is None else f"quota {self.cpu_quota:g}"
        return (
            f"{memory}; {self.thread_budget} threads ({quota}, {len(self.allowed_cpus)} of {self.num_online_cpus} CPUs "
            f"on {self.num_physical_cores} cores); {self.num_nodes} NUMA node{'s' if self.num_nodes > 1 else ''}; "
            f"L2 {self.l2_bytes >> 10} KiB, L3 {self.l3_bytes >> 20} MiB; huge pages {self.thp or 'unknown'}"
            + (f"; throttled {self.num_throttled} times" if self.num_throttled else "")
        )


def read_limits(root: Path = Path("/"), affinity: set[int] | None = None, pid_cgroup_text: str | None = None) -> Limits:
    """Read everything below `root`. `affinity`: CPUs the scheduler may use (asked of the kernel when root is "/");
    `pid_cgroup_text`: content of /proc/self/cgroup (read when None)."""
    if affinity is None and root == Path("/") and hasattr(os, "sched_getaffinity"):
        affinity = set(os.sched_getaffinity(0))
    groups = _Groups(root, _text(root / "proc/self/cgroup") if pid_cgroup_text is None else pid_cgroup_text)
    notes: list[str] = []

    meminfo = _meminfo(_text(root / "proc/meminfo")) or _memory_by_sysconf(root, notes)
    host = meminfo.get("MemTotal", 0)
    limit, free = _memory(groups, meminfo.get("MemAvailable", meminfo.get("MemFree", host)), notes)
    limit, free = _address_space(root, limit, free, notes)
    usable = host if limit is None else min(host or limit, limit)

    online, allowed = _cpus(root, affinity, groups)
    num_throttled, throttled_s = _throttling(groups)
    caches = _caches(root, allowed[0])
    return Limits(
        host_memory=host,
        memory_limit=limit if limit is not None and (limit < host or not host) else None,
        usable_memory=usable,
        free_memory=max(0, min(free, usable)),
        cpu_quota=_quota(groups, notes),
        allowed_cpus=allowed,
        num_online_cpus=len(online),
        num_physical_cores=_num_cores(root, allowed),
        nodes=_nodes(root, allowed, host),
        l1d_bytes=caches.get((1, "Data"), 0),
        l2_bytes=caches.get((2, "Unified"), 0),
        l3_bytes=caches.get((3, "Unified"), 0),
        thp=_bracketed(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        num_throttled=num_throttled,
        throttled_s=throttled_s,
        notes=tuple(notes),
    )


class _Groups:
    """Directories of this process's control groups, per controller, innermost first."""

    def __init__(self, root: Path, text: str) -> None:
        self._mount = root / CGROUP_MOUNT
        self._paths: dict[str, str] = {}
        for line in text.splitlines():
            _, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            for name in names.split(","):
                self._paths[name] = path

    def v2(self) -> Iterator[Path]:
        """Groups of the unified hierarchy."""
        for mount in (self._mount, self._mount / "unified"):
            if (mount / "cgroup.controllers").exists() or (mount / "cgroup.procs").exists():
                yield from _upwards(mount, self._paths.get("", "/"))

    def v1(self, controller: str) -> Iterator[Path]:
        """Groups of one controller's own hierarchy."""
        for name in V1_MOUNTS[controller]:
            mount = self._mount / name
            if mount.is_dir():
                yield from _upwards(mount, self._paths.get(controller, "/"))
                return


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """`mount/path` and its parents down to `mount`. Inside a container the path may be the host's while the mount shows
    only the container's part of it: leading components are dropped until the directory exists."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    while parts and not mount.joinpath(*parts).is_dir():
        parts = parts[1:]
    for end in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:end])


def _memory(groups: _Groups, available: int, notes: list[str]) -> tuple[int | None, int]:
    """Smallest limit over all levels, and what is free under every level's limit."""
    limit, free = None, available
    levels: list[tuple[Path, tuple[str, ...], str, str]] = [
        (g, ("memory.max", "memory.high"), "memory.current", "inactive_file") for g in groups.v2()
    ]
    levels += [
        (g, ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file") for g in groups.v1("memory")
    ]
    for group, limit_files, usage_file, cache_key in levels:
        found = [(value, name) for name in limit_files if (value := _number(_text(group / name))) is not None]
        stat = _pairs(_text(group / "memory.stat"))
        if "hierarchical_memory_limit" in stat:
            found.append((stat["hierarchical_memory_limit"], "memory.stat"))
        if not found:
            continue
        value, name = min(found)
        if limit is None or value < limit:
            limit = value
            if value < 1 << 60:
                notes.append(f"memory limit {_gib(value)} from {group / name}")
        used = _number(_text(group / usage_file)) or 0
        cached = stat.get(cache_key, stat.get("inactive_file", 0))
        free = min(free, value - max(0, used - cached))
    return limit, free


def _address_space(root: Path, limit: int | None, free: int, notes: list[str]) -> tuple[int | None, int]:
    """The limit of one process (`ulimit -v`) counts every mapping, touched or not: what is mapped now is taken off."""
    for line in _text(root / "proc/self/limits").splitlines():
        if line.startswith("Max address space"):
            value = _number(line.split()[3])
            if value is not None:
                notes.append(f"address space {_gib(value)} from proc/self/limits")
                mapped = (_number(_text(root / "proc/self/statm").partition(" ")[0]) or 0) * PAGE_BYTES
                return min(value, limit or value), min(free, value - mapped)
    return limit, free


def _quota(groups: _Groups, notes: list[str]) -> float | None:
    """Smallest CPU quota over all levels, in cores."""
    quotas: list[tuple[float, str]] = []
    for group in groups.v2():
        quota, _, period = _text(group / "cpu.max").strip().partition(" ")
        if quota.isdigit():
            quotas.append((int(quota) / (_number(period) or 100_000), str(group / "cpu.max")))
    for group in groups.v1("cpu"):
        value = _number(_text(group / "cpu.cfs_quota_us"))
        if value is not None and value > 0:
            period_us = _number(_text(group / "cpu.cfs_period_us")) or 100_000
            quotas.append((value / period_us, str(group / "cpu.cfs_quota_us")))
    if not quotas:
        return None
    quota_cores, source = min(quotas)
    notes.append(f"CPU quota {quota_cores:g} from {source}")
    return quota_cores


def _cpus(root: Path, affinity: set[int] | None, groups: _Groups) -> tuple[list[int], tuple[int, ...]]:
    """Online CPUs, and those of them that affinity and every cpuset level allow; never none."""
    online = parse_cpu_list(_text(root / "sys/devices/system/cpu/online"))
    if not online:
        online = [i for i, line in enumerate(_text(root / "proc/cpuinfo").split("\n")) if line.startswith("processor")]
        online = list(range(len(online))) or sorted(affinity or range(os.cpu_count() or 1))
    allowed = set(online)
    sets = [_text(g / "cpuset.cpus.effective") for g in groups.v2()]
    sets += [_text(g / "cpuset.effective_cpus") or _text(g / "cpuset.cpus") for g in groups.v1("cpuset")]
    for cpus in (affinity or set(), *(set(parse_cpu_list(text)) for text in sets)):
        # A set that names no online CPU is stale or foreign (a host path seen from a container).
        if cpus & allowed:
            allowed &= cpus
    return online, tuple(sorted(allowed))


def _throttling(groups: _Groups) -> tuple[int, float]:
    """Throttled periods and seconds of the innermost group that counts them."""
    for group in (*groups.v2(), *groups.v1("cpu")):
        stat = _pairs(_text(group / "cpu.stat"))
        if "nr_throttled" in stat:
            return stat["nr_throttled"], stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9
    return 0, 0.0


def _num_cores(root: Path, cpus: tuple[int, ...]) -> int:
    seen: set[int] = set()
    count = 0
    for cpu in cpus:
        if cpu not in seen:
            topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
            text = _text(topology / "core_cpus_list") or _text(topology / "thread_siblings_list")
            seen |= {cpu, *parse_cpu_list(text)}
            count += 1
    return count


def _nodes(root: Path, allowed: tuple[int, ...], host_memory: int) -> tuple[Node, ...]:
    """NUMA nodes with at least one allowed CPU; one node of everything where the kernel shows none."""
    folder = root / "sys/devices/system/node"
    nodes = []
    for index in parse_cpu_list(_text(folder / "online")):
        cpus = tuple(sorted(set(allowed) & set(parse_cpu_list(_text(folder / f"node{index}/cpulist")))))
        if cpus:
            text = _text(folder / f"node{index}/meminfo").replace(f"Node {index} ", "")
            nodes.append(Node(index, cpus, _meminfo(text).get("MemTotal", 0)))
    return tuple(nodes) or (Node(0, allowed, host_memory),)


def _caches(root: Path, cpu: int) -> dict[tuple[int, str], int]:
    """{(level, type): bytes} of one CPU; an instruction cache is not reported."""
    found = {}
    for index in range(8):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        level, kind = _number(_text(folder / "level")), _text(folder / "type").strip()
        if level is None:
            break
        size = _text(folder / "size").strip()
        scale = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        found[level, kind] = (_number(size.rstrip("KM")) or 0) * scale
    return found


def parse_cpu_list(text: str) -> list[int]:
    """ "0-3,8" -> [0, 1, 2, 3, 8]; odd parts are left out."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            cpus += range(int(first), min(int(last or first), int(first) + 8191) + 1)
    return cpus


def _text(path: Path) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.removeprefix("-").isdigit() else None


def _pairs(text: str) -> dict[str, int]:
    """Lines of "name number"."""
    fields = (line.split() for line in text.splitlines())
    return {f[0]: int(f[1]) for f in fields if len(f) == 2 and f[1].isdigit()}


def _memory_by_sysconf(root: Path, notes: list[str]) -> dict[str, int]:
    """What /proc/meminfo would have said, in a root where /proc is not mounted; nothing of another machine's tree."""
    if root != Path("/"):
        return {}
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    notes.append("/proc/meminfo cannot be read: free memory leaves out what caches could give back")
    return {"MemTotal": total, "MemFree": free}


def _meminfo(text: str) -> dict[str, int]:
    """{name: bytes} of lines "Name:   123 kB"."""
    fields = (line.replace(":", " ").split() for line in text.splitlines())
    return {f[0]: int(f[1]) << 10 for f in fields if len(f) >= 2 and f[1].isdigit()}


def _bracketed(text: str) -> str:
    """ "always [madvise] never" -> "madvise"."""
    return text.partition("[")[2].partition("]")[0]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
