import os

import pytest

from headsweep.machine import host

PHYSICAL = 1 << 34
UNLIMITED = "9223372036854771712\n"  # as the first version says it


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Groups of processes that a test makes; a machine of 16 GiB outside SLURM."""
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": PHYSICAL // 4096}
    monkeypatch.setattr(os, "sysconf", sizes.get)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    monkeypatch.setattr(host, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(host, "_MEMBERSHIP", tmp_path / "membership")
    for variable in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


FIRST = "9:name=systemd:/\n4:cpu,memory:/slurm/job_7\n0::/\n"
SECOND = "0::/slurm/job_7\n"


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        (None, {}, PHYSICAL),
        (SECOND, {}, PHYSICAL),
        (SECOND, {"slurm/job_7/memory.max": "max\n", "slurm/memory.max": "max\n"}, PHYSICAL),
        (SECOND, {"slurm/job_7/memory.max": "8000000\n"}, 8_000_000),
        (SECOND, {"slurm/job_7/memory.max": "max\n", "slurm/memory.max": "9000000\n"}, 9_000_000),
        (SECOND, {"memory.max": "7000000\n"}, 7_000_000),  # a container's own, at the root
        (SECOND, {"slurm/job_7/memory.max": f"{PHYSICAL * 4}\n"}, PHYSICAL),
        (FIRST, {"memory/slurm/job_7/memory.limit_in_bytes": UNLIMITED}, PHYSICAL),
        (FIRST, {"memory/slurm/job_7/memory.limit_in_bytes": "8000000\n"}, 8_000_000),
        (FIRST, {"memory/slurm/memory.limit_in_bytes": "6000000\n"}, 6_000_000),
        (FIRST, {"cpu/slurm/job_7/memory.limit_in_bytes": "8000000\n"}, PHYSICAL),
    ],
)
def test_memory_is_the_machine_s_or_the_least_limit_around_this_process(
    membership, limits, expected, groups
):
    write(groups, membership, limits)
    assert host.host_memory() == expected


def write(groups, membership, limits):
    """Write what the kernel says of this process's groups."""
    if membership is not None:
        (groups / "membership").write_text(membership)
    for name, limit in limits.items():
        file = groups / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit)


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        (None, {}, 64),
        (SECOND, {"slurm/job_7/cpu.max": "max 100000\n"}, 64),
        (SECOND, {"slurm/job_7/cpu.max": "200000 100000\n"}, 2),
        (SECOND, {"slurm/job_7/cpu.max": "max 50000\n", "slurm/cpu.max": "350000 100000\n"}, 4),
        (SECOND, {"cpu.max": "20000 100000\n"}, 1),
        (SECOND, {"cpu.max": "9900000 100000\n"}, 64),
        (
            FIRST,
            {"cpu/slurm/cpu.cfs_quota_us": "-1\n", "cpu/slurm/cpu.cfs_period_us": "1000\n"},
            64,
        ),
        (
            FIRST,
            {"cpu/slurm/cpu.cfs_quota_us": "3000\n", "cpu/slurm/cpu.cfs_period_us": "1000\n"},
            3,
        ),
        (FIRST, {"memory/slurm/cpu.cfs_quota_us": "3000\n"}, 64),
    ],
)
def test_cores_are_those_that_a_container_s_share_makes_up(membership, limits, expected, groups):
    write(groups, membership, limits)
    assert host.host_cores() == expected


@pytest.mark.parametrize(
    ("megabytes", "cores", "expected"),
    [
        ("3000", "8", (3000 * 2**20, 8)),
        ("0", "128", (PHYSICAL, 64)),  # all of the node
        ("", "", (PHYSICAL, 64)),
        ("99999999", "64", (PHYSICAL, 64)),
    ],
)
def test_a_job_of_slurm_s_has_the_memory_and_the_cores_that_it_was_given(
    megabytes, cores, expected, groups, monkeypatch
):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", megabytes)
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", cores)
    assert (host.host_memory(), host.host_cores()) == expected


def test_a_job_of_slurm_s_may_be_given_memory_by_the_core(groups, monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "700")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "3")
    assert host.host_memory() == 2100 * 2**20
