"""Hosts that lines number, and the ranks of a host that failed which follow from its number."""

import pytest

from meshwright.postmortem.inputs import read_all

from .made import judge
from .test_hosts import broke, named
from .test_whose_stacks import LOADS, REDUCES, dump

FAILED = "srun: error: Node failure on m2"
COMPLAINTS = [broke(rank) for rank in (0, 5, 13)]
ALL = "0 -> m0, 1 -> m1, 2 -> m2, 3 -> m3"

TOLD = {
    "tasks and arrows": [f"tasks: {ALL} (4 ranks per task)"],
    "a list in brackets": [f"SLURM_JOB_NODELIST=m[0-3] (task {ALL}; 4 ranks per task, block order)"],
    "node ranks": ["node ranks: m0=0 m1=1 m2=2 m3=3", "torchrun --nproc-per-node=4 fit.py"],
    "in parentheses": ["hosts m0 (node 0), m1 (node 1), m2 (node 2), m3 (node 3); 4 GPUs per node"],
    "in words": ["m0 is node 0, m1 is node 1, m2 is node 2, m3 is node 3. 4 processes per node"],
    "one a line": [*(f"# m{n}: NODE_RANK={n}" for n in range(4)), "torchrun --nproc_per_node 4 --node_rank $NODE_RANK"],
    "the world's size": [f"nodes: {ALL}", "world_size=16"],
    "commands by ssh": [
        f"ssh -o BatchMode=yes me@m{n} 'NODE_RANK={n} torchrun --nproc_per_node 4 --node_rank {n} fit.py'"
        for n in range(4)
    ],
    "commands by pdsh": [f"pdsh -w m{n} NODE_RANK={n} NPROC_PER_NODE=4 bash run.sh" for n in range(4)],
}


@pytest.mark.parametrize("lines", TOLD.values(), ids=TOLD)
def test_a_host_that_failed_has_the_ranks_of_its_number(lines, tmp_path):
    assert named(judge(tmp_path, {"job.out": [*lines, *COMPLAINTS, FAILED]})) == ("killed", (8, 9, 10, 11), False)


UNTOLD = {
    "ranks that go round the hosts": [f"tasks: {ALL} (4 ranks per task, cyclic)"],
    "a rendezvous that numbers hosts as they come": [f"tasks: {ALL} (4 ranks per task)", "--rdzv_backend c10d"],
    "a number is missing": ["tasks: 0 -> m0, 1 -> m1, 2 -> m2, 4 -> m4 (4 ranks per task)"],
    "two tasks of one host": ["tasks: 0 -> m0, 1 -> m0, 2 -> m2, 3 -> m3 (4 ranks per task)"],
    "nothing says how many ranks": [f"tasks: {ALL}"],
    "two lines say it differently": [f"tasks: {ALL} (4 ranks per task)", "torchrun --nproc-per-node 8 fit.py"],
    "tasks of a node are not ranks of a task": [f"tasks: {ALL}, 4 ranks per node"],
    "what befell hosts": [f"node {n} -> m{n} lost, 4 ranks per node" for n in range(4)],
}


@pytest.mark.parametrize("lines", UNTOLD.values(), ids=UNTOLD)
def test_numbers_that_do_not_lead_to_ranks_name_nobody(lines, tmp_path):
    assert judge(tmp_path, {"job.out": [*lines, *COMPLAINTS, FAILED]}).blamed == ()


@pytest.mark.parametrize(
    "line",
    ["NUMA node 0 -> card-0, node 1 -> card-1; 4 GPUs per node", "node 0: mlx5_0, node 1: mlx5_1, 4 ranks per node"],
)
def test_parts_of_one_host_are_no_hosts(line, tmp_path):
    (tmp_path / "job.out").write_text(f"{line}\n")

    assert not any(type(fact).__name__ == "AgentRanks" for fact in read_all([tmp_path]).facts)


@pytest.mark.parametrize("name", ["b200-07", "h100-1213", "a100-2"])
def test_a_host_may_be_called_after_its_gpus(name, tmp_path):
    told = [f"gx-1: ranks 0-1   {name}: ranks 2-3", broke(0), f"srun: error: Node failure on {name}"]

    assert judge(tmp_path, told).blamed == (2, 3)


def looked_at(*hosts, late=("cx22", 0)):
    """Dumps of two processes of each host, behind labels of pdsh; one loads data."""
    return [
        f"{host}: {line}"
        for host in hosts
        for at in range(2)
        for line in [
            f"--- local_rank {at} ---",
            *dump(5000 + 9 * at, "python fit.py", LOADS if (host, at) == late else REDUCES),
        ]
    ]


PDSH = "$ pdsh -w cx[21-22] spy.sh # torchrun --nnodes=2 --nproc_per_node=2"
ONE_OF_TWO = {
    "is": ([f"{PDSH}, cx21 is node_rank 0", *looked_at("cx21", "cx22")], (2,)),
    "the other one": ([f"{PDSH}, cx22 has node_rank=0", *looked_at("cx21", "cx22")], (0,)),
    "the number first": ([f"{PDSH}; node rank 1 is cx22", *looked_at("cx21", "cx22")], (2,)),
    "in another file": ({"note.md": [f"{PDSH} (cx21: node_rank 0)"], "spy.txt": looked_at("cx21", "cx22")}, (2,)),
    "both": ([f"{PDSH} cx21 = node_rank 0, cx22 = node_rank 1", *looked_at("cx21", "cx22")], (2,)),
    "no host": ([f"{PDSH} --node_rank 0", *looked_at("cx21", "cx22")], ()),
    "numbered as they come": ([f"{PDSH} --rdzv_backend=c10d, cx21 is node_rank 0", *looked_at("cx21", "cx22")], ()),
    "one of three": (
        [f"{PDSH.replace('nnodes=2', 'nnodes=3')}, cx21 is node_rank 0", *looked_at("cx21", "cx22", "cx23")],
        (),
    ),
}


@pytest.mark.parametrize(("files", "blamed"), ONE_OF_TWO.values(), ids=ONE_OF_TWO)
def test_a_comment_on_the_number_of_one_host_tells_the_ranks_of_the_other_of_two(files, blamed, tmp_path):
    assert judge(tmp_path, files).blamed == blamed


def test_hosts_that_a_comment_lists_in_the_order_of_their_numbers_have_their_ranks(tmp_path):
    log = ["# SLURM_NODEID 0..2 = xi31 xi32 xi33, 4 tasks a node, block distribution", "step 4 loss 2.1"]
    kernel = ["[Tue Nov 24 02:02:41 2026] NVRM: Xid (PCI:0000:ab:00): 79, pid='<unknown>', GPU has fallen off the bus."]
    table = [
        "index, pci.bus_id, uuid",
        *(f"{n}, 00000000:{bus}:00.0, GPU-5{n}" for n, bus in enumerate(("18", "2A", "AB"))),
    ]
    files = {"job.log": log, "xi32_dmesg.txt": kernel, "xi32_smi.txt": table}

    assert judge(tmp_path, files).blamed == (6,)
    assert judge(tmp_path, {**files, "job.log": [log[0].replace("0..2", "0..3"), log[1]]}).blamed == ()
