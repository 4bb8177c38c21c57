"""What this process may really use: memory, CPU time, and cores with their nodes and caches (`octavo.platforms.topology`).
The only place that reads such limits.

A pure function of a file tree: `read_limits(root)` reads `root/proc` and `root/sys` and nothing else, so that every
container shape is a test. Sizes in bytes, CPU quota in cores, times in seconds. Sources: kernel documentation
admin-guide/cgroup-v2 (memory.max, memory.high, cpu.max, cpuset.cpus.effective, cpu.stat), cgroup-v1/memory and
scheduler/sched-bwc.

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

from octavo.platforms.kernel_files import cpu_list, meminfo, number, pairs, read_text
from octavo.platforms.topology import Topology, read_topology

GIB = 1 << 30
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
CGROUP_MOUNT = "sys/fs/cgroup"
V1_MOUNTS = {"memory": ("memory",), "cpu": ("cpu", "cpu,cpuacct"), "cpuset": ("cpuset",)}


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
    topology: Topology  # of the allowed CPUs
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
        """`thread_budget`, but none for slow cores beside fast ones, which every op would wait for."""
        return min(self.thread_budget, len(self.topology.fast_cpus))

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
            f"{memory}; {self.num_compute_threads} threads ({quota}, {len(self.allowed_cpus)} of {self.num_online_cpus} CPUs "
            f"on {self.topology.summary()}; huge pages {self.thp or 'unknown'}"
            + (f"; throttled {self.num_throttled} times" if self.num_throttled else "")
        )


def read_limits(root: Path = Path("/"), affinity: set[int] | None = None, pid_cgroup_text: str | None = None) -> Limits:
    """Read everything below `root`. `affinity`: CPUs the scheduler may use (asked of the kernel when root is "/");
    `pid_cgroup_text`: content of /proc/self/cgroup (read when None)."""
    if affinity is None and root == Path("/") and hasattr(os, "sched_getaffinity"):
        affinity = set(os.sched_getaffinity(0))
    groups = _Groups(root, read_text(root / "proc/self/cgroup") if pid_cgroup_text is None else pid_cgroup_text)
    notes: list[str] = []

    memory = meminfo(read_text(root / "proc/meminfo")) or _memory_by_sysconf(root, notes)
    host = memory.get("MemTotal", 0)
    limit, free = _memory(groups, memory.get("MemAvailable", memory.get("MemFree", host)), notes)
    limit, free = _address_space(root, limit, free, notes)
    usable = host if limit is None else min(host or limit, limit)

    online, allowed = _cpus(root, affinity, groups)
    num_throttled, throttled_s = _throttling(groups)
    return Limits(
        host_memory=host,
        memory_limit=limit if limit is not None and (limit < host or not host) else None,
        usable_memory=usable,
        free_memory=max(0, min(free, usable)),
        cpu_quota=_quota(groups, notes),
        allowed_cpus=allowed,
        num_online_cpus=len(online),
        topology=read_topology(root, allowed, host),
        thp=_bracketed(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
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
        found = [(value, name) for name in limit_files if (value := number(read_text(group / name))) is not None]
        stat = pairs(read_text(group / "memory.stat"))
        if "hierarchical_memory_limit" in stat:
            found.append((stat["hierarchical_memory_limit"], "memory.stat"))
        if not found:
            continue
        value, name = min(found)
        if limit is None or value < limit:
            limit = value
            if value < 1 << 60:
                notes.append(f"memory limit {_gib(value)} from {group / name}")
        used = number(read_text(group / usage_file)) or 0
        cached = stat.get(cache_key, stat.get("inactive_file", 0))
        free = min(free, value - max(0, used - cached))
    return limit, free


def _address_space(root: Path, limit: int | None, free: int, notes: list[str]) -> tuple[int | None, int]:
    """The limit of one process (`ulimit -v`) counts every mapping, touched or not: what is mapped now is taken off."""
    for line in read_text(root / "proc/self/limits").splitlines():
        if line.startswith("Max address space"):
            value = number(line.split()[3])
            if value is not None:
                notes.append(f"address space {_gib(value)} from proc/self/limits")
                mapped = (number(read_text(root / "proc/self/statm").partition(" ")[0]) or 0) * PAGE_BYTES
                return min(value, limit or value), min(free, value - mapped)
    return limit, free


def _quota(groups: _Groups, notes: list[str]) -> float | None:
    """Smallest CPU quota over all levels, in cores."""
    quotas: list[tuple[float, str]] = []
    for group in groups.v2():
        quota, _, period = read_text(group / "cpu.max").strip().partition(" ")
        if quota.isdigit():
            quotas.append((int(quota) / (number(period) or 100_000), str(group / "cpu.max")))
    for group in groups.v1("cpu"):
        value = number(read_text(group / "cpu.cfs_quota_us"))
        if value is not None and value > 0:
            period_us = number(read_text(group / "cpu.cfs_period_us")) or 100_000
            quotas.append((value / period_us, str(group / "cpu.cfs_quota_us")))
    if not quotas:
        return None
    quota_cores, source = min(quotas)
    notes.append(f"CPU quota {quota_cores:g} from {source}")
    return quota_cores


def _cpus(root: Path, affinity: set[int] | None, groups: _Groups) -> tuple[list[int], tuple[int, ...]]:
    """Online CPUs, and those of them that affinity and every cpuset level allow; never none."""
    online = cpu_list(read_text(root / "sys/devices/system/cpu/online"))
    if not online:
        online = [
            i for i, line in enumerate(read_text(root / "proc/cpuinfo").split("\n")) if line.startswith("processor")
        ]
        online = list(range(len(online))) or sorted(affinity or range(os.cpu_count() or 1))
    allowed = set(online)
    sets = [read_text(g / "cpuset.cpus.effective") for g in groups.v2()]
    sets += [read_text(g / "cpuset.effective_cpus") or read_text(g / "cpuset.cpus") for g in groups.v1("cpuset")]
    for cpus in (affinity or set(), *(set(cpu_list(text)) for text in sets)):
        # A set that names no online CPU is stale or foreign (a host path seen from a container).
        if cpus & allowed:
            allowed &= cpus
    return online, tuple(sorted(allowed))


def _throttling(groups: _Groups) -> tuple[int, float]:
    """Throttled periods and seconds of the innermost group that counts them."""
    for group in (*groups.v2(), *groups.v1("cpu")):
        stat = pairs(read_text(group / "cpu.stat"))
        if "nr_throttled" in stat:
            return stat["nr_throttled"], stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9
    return 0, 0.0


def _memory_by_sysconf(root: Path, notes: list[str]) -> dict[str, int]:
    """What /proc/meminfo would have said, in a root where /proc is not mounted; nothing of another machine's tree."""
    if root != Path("/"):
        return {}
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    notes.append("/proc/meminfo cannot be read: free memory leaves out what caches could give back")
    return {"MemTotal": total, "MemFree": free}


def _bracketed(text: str) -> str:
    """ "always [madvise] never" -> "madvise"."""
    return text.partition("[")[2].partition("]")[0]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
