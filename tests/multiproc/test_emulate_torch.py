"""Programs that know nothing of Meshwright run in the box unchanged, at the rates that were asked."""

import json
import sys
import time
from pathlib import Path

import pytest

from testkit.caches import new_cache
from tests.emulated import MEGABIT

pytestmark = pytest.mark.netns
PROGRAMS = Path(__file__).parent / "programs"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def records(job, places):
    """Return the objects that the ranks printed, in the order of the ranks."""
    lines = [json.loads(line) for place in range(places) for line in job.stdout(place).splitlines()]
    return sorted(lines, key=lambda line: line["rank"])


def test_a_plain_ddp_program_trains_across_two_nodes(emulated):
    cluster = emulated(nodes=2, nic_bytes_per_s=1000 * MEGABIT)

    job = cluster.start_ranks([sys.executable, str(PROGRAMS / "plain_ddp.py")])

    assert job.wait(timeout_s=200) == (0, 0), job.stderr(0) + job.stderr(1)
    found = records(job, 2)
    assert [(r["rank"], r["host"], r["sum"]) for r in found] == [(0, "node0", 2.0), (1, "node1", 2.0)]
    assert found[0]["weights"] == found[1]["weights"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_torchrun_starts_over_the_nodes_and_restarts_after_a_death(emulated, tmp_path):
    cluster = emulated(nodes=2, ranks_per_node=2, nic_bytes_per_s=1000 * MEGABIT)
    marker = tmp_path / "died"
    env = {"DIE_ONCE": f"3:{marker}", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}

    job = cluster.start_nodes([*TORCHRUN, "--max-restarts", "2", str(PROGRAMS / "plain_ddp.py")], env=env)

    assert job.wait(timeout_s=200) == (0, 0), job.stderr(0) + job.stderr(1)
    found = records(job, 2)
    assert [r["rank"] for r in found] == [0, 1, 2, 3]
    assert sorted(r["host"] for r in found) == ["node0", "node0", "node1", "node1"]
    assert marker.exists()
    assert max(r["attempt"] for r in found) == 1  # where a rank died; the other node only meets again
    assert len({r["weights"] for r in found}) == 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_torchrun_needs_no_options_to_find_the_other_nodes(emulated):
    began = time.time()
    cluster = emulated(nodes=4, nic_bytes_per_s=1000 * MEGABIT)
    ready_s = time.time() - began

    job = cluster.start_nodes([*TORCHRUN, str(PROGRAMS / "plain_ddp.py")])

    assert job.wait(timeout_s=200) == (0,) * 4, job.stderr(0)
    found = records(job, 4)
    assert {r["sum"] for r in found} == {4.0}
    first_collective_s = max(r["joined"] for r in found) - began
    sys.stdout.write(f"ready {ready_s:.2f} s, first collective {first_collective_s:.2f} s\n")
    assert ready_s < 3


@pytest.mark.slow
@pytest.mark.parametrize("megabits", [10, 100, 1000])
def test_gloo_reaches_the_rate_of_the_nic(emulated, megabits):
    rate = megabits * MEGABIT
    cluster = emulated(nodes=2, nic_bytes_per_s=rate)

    job = cluster.start_ranks([sys.executable, str(PROGRAMS / "gloo_rate.py"), str(int(rate * 0.5))])

    assert job.wait(timeout_s=200) == (0, 0), job.stderr(0)
    assert float(job.stdout(0)) == pytest.approx(rate, rel=0.1)


@pytest.mark.alone
def test_a_group_notices_a_slowed_link_and_chooses_as_a_fresh_start_would(emulated, tmp_path):
    cluster = emulated(nodes=4, nic_bytes_per_s=200 * MEGABIT)
    marker = tmp_path / "slowed"
    for half in ("first", "second"):
        new_cache(Path(f"{marker}-{half}"))
    program = [sys.executable, str(PROGRAMS / "slowed_link.py"), str(marker), "30000", "50"]

    job = cluster.start_ranks(program)
    cluster.await_until(lambda: Path(f"{marker}-ready").exists(), timeout_s=200)
    cluster.fault("slow node2 50Mbps")
    marker.touch()

    assert job.wait(timeout_s=200) == (0,) * 4, job.stderr(0)
    found = json.loads(job.stdout(0))
    assert found["after"]["beta_s_per_byte"] == pytest.approx(1 / (50 * MEGABIT), rel=0.5)
    differing = sum(a != b for a, b in zip(found["after"]["choices"], found["fresh"]["choices"], strict=True))
    assert found["before"]["choices"] != found["after"]["choices"]
    assert differing <= 1  # the size that lies at a crossover may fall to either side
