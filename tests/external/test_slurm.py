"""Jobs under a real SLURM: two of its nodes on this machine, with a controller and keys of their own."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time

import msgspec
import pytest

from meshwright.layout import Layout
from meshwright.train.checkpoint.folder import checkpoints
from testkit.fault_jobs import events, steps_done
from testkit.train_jobs import small_job, write_corpus, write_run

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "srun", "scancel", "squeue", "sinfo")
PATIENCE_S = 60.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONF = """ClusterName=box
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
TopologyPlugin=topology/tree
MpiDefault=none
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=500
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=500
PartitionName=main Nodes=n[0-1] Default=YES State=UP
"""
TREE = "SwitchName=leaf0 Nodes=n0\nSwitchName=leaf1 Nodes=n1\nSwitchName=core Switches=leaf[0-1]\n"


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "SLURM did not get that far"
        time.sleep(0.05)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [taken.getsockname()[1] for taken in sockets]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Start two nodes of SLURM; return the environment in which its commands find them."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and SLURM ({', '.join(missing)}): apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)  # munge insists
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, ports=free_ports(3)))
    (folder / "topology.conf").write_text(TREE)
    for name in ("state", "spool-n0", "spool-n1"):
        (folder / name).mkdir()
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "MASTER_ADDR": "127.0.0.1"}
    subprocess.run(["mungekey", "--create", f"--keyfile={folder}/munge.key"], check=True)
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    with contextlib.ExitStack() as stack:

        def start(*command):
            with (folder / f"{command[0]}.err").open("a") as errors:
                process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        until((folder / "munge.socket").exists)
        start("slurmctld", "-D", "-c")
        for node in ("n0", "n1"):
            start("slurmd", "-D", "-N", node)
        until(lambda: "2 idle" in said(environment, "sinfo", "--noheader", "--format=%D %t"))
        yield environment


def said(environment, *command):
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def srun(environment, *words):
    """Start a program on both nodes, each of which takes itself for a machine of its own."""
    program = 'export MESHWRIGHT_HOST=$SLURMD_NODENAME; exec "$@"'
    command = ["srun", "--nodes=2", "--ntasks=2", "bash", "-c", program, "task", sys.executable, *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ranks_know_the_switches_above_their_node(slurm):
    told = (
        "import os; from meshwright.backend.hosts.placement import switches_above; print(*switches_above(os.environ))"
    )

    out, err = srun(slurm, "-c", told).communicate(timeout=120)

    assert sorted(out.splitlines()) == ["core leaf0", "core leaf1"], err


def test_a_job_saves_at_slurms_warning_and_goes_on_when_it_is_started_again(slurm, tmp_path):
    job = small_job(write_corpus(tmp_path), steps=200, checkpoint_every=0, record=False)
    job = msgspec.structs.replace(job, launch=msgspec.structs.replace(job.launch, ranks=2))
    folder = write_run(tmp_path / "run", job, Layout(dp=2, mbs=4))
    words = ["-m", "meshwright.train", str(folder.path / "config.toml"), "--run-dir", str(folder.path), "--resume"]

    first = srun(slurm, *words)
    until(lambda: steps_done(folder) > 3 or first.poll() is not None)
    said(slurm, "scancel", "--signal=USR1", said(slurm, "squeue", "--noheader", "--format=%i").strip())
    _, err = first.communicate(timeout=120)

    assert 3 < steps_done(folder) < 200, err
    assert first.returncode != 0
    (saved,) = checkpoints(folder.checkpoints)
    assert int(saved.name.removeprefix("step-")) == steps_done(folder)
    assert "told to stop" in events(folder, "stop")[0].message

    again = srun(slurm, *words)
    _, err = again.communicate(timeout=200)

    assert again.returncode == 0, err
    assert steps_done(folder) == 200
