"""Labels of Kubernetes nodes: which switches and which NVLink domain each is in."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.proximity import hops
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
HEAD = "NAME   STATUS   ROLES    AGE   VERSION   LABELS\n"
ROW = "{0}   Ready    <none>   12d   v1.31.4   beta.kubernetes.io/arch=amd64,kubernetes.io/hostname={0},{1}\n"
SPINES = (
    "network.topology.nvidia.com/leaf=l{0},network.topology.nvidia.com/spine=s{1},network.topology.nvidia.com/core=c"
)
OLDER = (
    "network.topology.nvidia.com/block=b1,network.topology.nvidia.com/spine=s1,network.topology.nvidia.com/datacenter=d"
)
AWS = ",".join(f"topology.k8s.aws/network-node-layer-{i}=nn-{{{i}}}" for i in (1, 2, 3))
OCI = "oci.oraclecloud.com/rdma.hpc_island_id=i,oci.oraclecloud.com/rdma.local_block_id=b{0}"
GCE = "cloud.google.com/gce-topology-block=b,cloud.google.com/gce-topology-subblock=sb{0}"


def read(folder, text, name="nodes.txt"):
    (folder / name).write_text(text)
    return load_dump(folder / name, CATALOGUE)


@pytest.mark.parametrize(
    ("labels", "switches"),
    [
        (SPINES.format(1, 0), ("l1", "s0", "c")),
        (AWS.format("", "top", "mid", "low"), ("nn-low", "nn-mid", "nn-top")),
        (OLDER, ("b1", "s1", "d")),
        (OCI.format(7), ("b7", "i")),
        (GCE.format(3), ("sb3", "b")),
        ("nvidia.com/gpu.clique=aaaa-bbbb.1", ("aaaa-bbbb.1",)),
    ],
)
def test_each_family_of_labels_gives_the_switches_above_a_node_the_nearest_first(labels, switches, tmp_path):
    cluster = read(tmp_path, HEAD + ROW.format("gpu-0", labels))

    assert [(p.node, p.switches) for p in cluster.placements] == [("gpu-0", switches)]


def test_nodes_under_one_leaf_are_nearer_and_their_domain_is_their_block(tmp_path):
    rows = [("a", "1", "x.1"), ("b", "1", "x.1"), ("c", "2", "x.2")]
    text = HEAD + "".join(ROW.format(n, f"{SPINES.format(leaf, 0)},nvidia.com/gpu.clique={d}") for n, leaf, d in rows)
    cluster = read(tmp_path, text + ROW.format("login", "x=y") + "$ exit\n")

    assert (hops(cluster, "a", "b"), hops(cluster, "a", "c")) == (1, 2)
    assert [p.block for p in cluster.placements] == ["x.1", "x.1", "x.2"]
    assert cluster.warnings == ("1 of 4 nodes have no label of their place: login",)


def test_json_says_the_same(tmp_path):
    labels = dict(pair.split("=") for pair in SPINES.format(1, 0).split(","))
    node = {"kind": "Node", "metadata": {"name": "gpu-0", "labels": labels}}

    listed = read(tmp_path, json.dumps({"kind": "List", "items": [node]}), "a.json")

    assert listed.placements == read(tmp_path, json.dumps(node), "b.json").placements
    assert listed.placements == read(tmp_path, HEAD + ROW.format("gpu-0", SPINES.format(1, 0))).placements


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + ROW.format("a", "x=y"), "no node has a label of its place in the network"),
        (HEAD + 2 * ROW.format("a", SPINES.format(1, 0)), "node a stands twice"),
        (
            HEAD + ROW.format("a", SPINES.format(1, 0)) + ROW.format("b", SPINES.format(1, 1)),
            "l1 is below s0 and, by b, s1",
        ),
    ],
)
def test_labels_that_say_nothing_or_two_things_are_refused(text, said, tmp_path):
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)


def test_a_plan_takes_the_nodes_that_the_labels_put_together(tmp_path):
    leaves = [0, 1, 0, 1, 0, 1]
    text = HEAD + "".join(ROW.format(f"n{i}", SPINES.format(leaf, 0)) for i, leaf in enumerate(leaves))
    (tmp_path / "nodes.txt").write_text(text)

    words = ["plan", "--model", "llama3-8b", "--cluster", "dgx-a100-80g", "--gpus", "16", "--global-batch", "16"]
    output = str(tmp_path / "plan.json")

    assert (
        run_command([*words, "--layout", "tp=8,dp=2", "--placements", str(tmp_path / "nodes.txt"), "--output", output])
        == 0
    )
    nodes = json.loads((tmp_path / "plan.json").read_text())["nodes"]
    assert len(nodes) == 2
    assert len({leaves[int(node[1:])] for node in nodes}) == 1


LISTED = """apiVersion: v1
items:
- apiVersion: v1
  kind: Node
  metadata:
    annotations:
      labels: none of these
    labels:
      kubernetes.io/hostname: ida
      # set by hand
      cloud.google.com/gce-topology-block: "b7"
      cloud.google.com/gce-topology-subblock: 'sb1'
    name: ida
  spec:
    taints:
    - effect: NoSchedule
      key: nvidia.com/gpu
  status:
    images:
    - names:
      - registry/a:1
- kind: Node
  metadata:
    name: jon
    labels:
      cloud.google.com/gce-topology-block: b7
      cloud.google.com/gce-topology-subblock: sb2
- kind: Pod
  metadata:
    name: no-node
    labels: {app: train}
kind: List
"""
DOCUMENTS = """Two of our nodes:
```yaml
kind: Node
apiVersion: v1
metadata:
  name: kim
  labels:
    network.topology.nvidia.com/leaf: l1
    network.topology.nvidia.com/spine: s1
---
apiVersion: v1
kind: Deployment
metadata:
  name: web
  labels:
    network.topology.nvidia.com/leaf: l9
```
and
```yaml
apiVersion: v1
kind: Node
metadata:
  labels:
    network.topology.nvidia.com/leaf: l2
    network.topology.nvidia.com/spine: s1
  name: lea
```
"""


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (LISTED, [("ida", ("sb1", "b7")), ("jon", ("sb2", "b7"))]),
        (DOCUMENTS, [("kim", ("l1", "s1")), ("lea", ("l2", "s1"))]),
    ],
    ids=["a list", "documents in a note"],
)
def test_nodes_in_yaml_hang_where_their_labels_say(tmp_path, text, places):
    cluster = read(tmp_path, text, "nodes.yaml")

    assert [(place.node, place.switches) for place in cluster.placements] == places


def test_nodes_in_yaml_without_such_labels_are_refused_by_what_was_looked_for(tmp_path):
    with pytest.raises(InputError, match="no node has a label of its place in the network"):
        read(tmp_path, "kind: Node\nmetadata:\n  name: max\n  labels:\n    app: x\n", "nodes.yaml")


def aws(*instances):
    return json.dumps({"Instances": [{"InstanceType": "p5.48xlarge", **instance} for instance in instances]})


def google(name, **host):
    return {"name": name, "resourceStatus": {"physicalHostTopology": host} if host else {}}


def test_instances_of_clouds_have_the_switches_above_them_the_nearest_first(tmp_path):
    two = aws(
        {"InstanceId": "i-1", "NetworkNodes": ["nn-top", "nn-mid", "nn-low"], "CapacityBlockId": "cb-1"},
        {"InstanceId": "i-2", "NetworkNodes": ["nn-top", "nn-mid", "nn-far"]},
    )
    hosts = [google("a-1", cluster="c", block="b", subblock="s", host="h"), google("a-2")]

    of_aws, of_google = read(tmp_path, two, "aws.json"), read(tmp_path, json.dumps(hosts), "google.json")

    assert [(p.node, p.switches, p.block) for p in of_aws.placements] == [
        ("i-1", ("nn-low", "nn-mid", "nn-top"), "cb-1"),
        ("i-2", ("nn-far", "nn-mid", "nn-top"), ""),
    ]
    assert [(p.node, p.switches) for p in of_google.placements] == [("a-1", ("s", "b", "c"))]
    assert of_google.warnings == ("1 of 2 nodes have no label of their place: a-2",)
    assert read(tmp_path, f"$ aws ec2 describe-instance-topology\n{two}").placements == of_aws.placements


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps([google("a")]), "none has a place in the network"),
        (aws({"NetworkNodes": ["nn-1"]}), "expected InstanceId of each instance"),
        (aws({"InstanceId": "i-1", "NetworkNodes": "nn-1"}), "NetworkNodes of each instance as a list"),
        ('{"Reservations": []}', "not a known dump; expected nvidia-smi topo -m"),
        ("[1, 2]", "not a known dump; expected nvidia-smi topo -m"),
    ],
)
def test_json_that_tells_no_place_is_refused_by_what_it_lacks(text, said, tmp_path):
    with pytest.raises(InputError, match=said):
        read(tmp_path, text, "x.json")


COLUMNS = """NAME    STATUS                     ROLES    AGE   VERSION   NETWORK-NODE-LAYER-1   NETWORK-NODE-LAYER-2
ip-a    Ready                      <none>   9d    v1.33.1   nn-top                 nn-near
ip-b    Ready,SchedulingDisabled   <none>   9d    v1.33.1   nn-top                 nn-far
ip-c    Ready                      <none>   9d    v1.33.1                          nn-far
ip-d    NotReady                   <none>   9d    v1.33.1
$ exit
"""


def test_columns_of_single_labels_say_the_same_and_an_empty_one_is_no_label(tmp_path):
    cluster = read(tmp_path, "$ kubectl get nodes -L ...\n" + COLUMNS)

    assert [(p.node, p.switches) for p in cluster.placements] == [
        ("ip-a", ("nn-near", "nn-top")),
        ("ip-b", ("nn-far", "nn-top")),
        ("ip-c", ("nn-far",)),
    ]


def test_nodes_that_take_no_work_now_are_named(tmp_path):
    cluster = read(tmp_path, COLUMNS)
    ready = read(tmp_path, HEAD + ROW.format("gpu-0", AWS.format("", "top", "mid", "low")))

    said = "2 of 4 nodes take no work now: ip-b (Ready,SchedulingDisabled), ip-d (NotReady)"
    assert (said in cluster.warnings, ready.warnings) == (True, ())


def test_a_table_of_nodes_without_labels_is_named(tmp_path):
    with pytest.raises(InputError, match=r"kubectl get nodes without labels.*--show-labels"):
        read(tmp_path, "NAME   STATUS   ROLES    AGE   VERSION\nn0     Ready    <none>   3d    v1.31.4\n")
