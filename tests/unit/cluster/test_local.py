import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.discovery.local import (
    discover_host,
    fingerprint,
    format_cores,
    local_cluster,
    parse_cores,
    usable_cores,
)
from meshwright.errors import InputError


def test_the_host_is_what_the_system_says():
    host = discover_host()

    assert host.cores == usable_cores() <= len(os.sched_getaffinity(0))
    assert host.software["kernel"] == os.uname().release
    assert host.memory_bytes > 2**28


def test_usable_cores_follow_the_affinity():
    core = min(os.sched_getaffinity(0))
    code = "from meshwright.cluster.discovery.local import usable_cores; print(usable_cores())"
    command = ["taskset", "-c", str(core), sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "1", done.stderr


def test_every_usable_core_is_in_one_cpu_device():
    cpus = local_cluster().of_kind("cpu")
    cores = [core for cpu in cpus for core in parse_cores(cpu.cpu_affinity)]

    assert sorted(cores) == sorted(os.sched_getaffinity(0))


def test_the_fingerprint_changes_with_a_version():
    host = discover_host()
    newer = type(host)(**{f: getattr(host, f) for f in host.__struct_fields__} | {"software": {"torch": "99"}})

    assert fingerprint(host) == fingerprint(host)
    assert fingerprint(host) != fingerprint(newer)


@given(st.sets(st.integers(0, 300)))
def test_core_lists_print_and_parse_back(cores):
    assert parse_cores(format_cores(sorted(cores))) == sorted(cores)


def test_a_bad_core_list_is_named():
    with pytest.raises(InputError, match="0-7,16-23"):
        parse_cores("0-x")
