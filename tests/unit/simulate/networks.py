"""Small clusters that the tests of the simulator share."""

from meshwright.cluster.graph import Cluster, Device, Fabric, NodeGroup


def nodes(count, *, gpus=1, nics=1, switched=True, **fabric):
    """Return a cluster of nodes alike on the fabric that the other keywords describe."""
    group = NodeGroup(
        type="", count=count, gpus=gpus, gpu=Device(id="GPU", kind="gpu"), gpu_link="NV", switched=switched,
        gpu_bandwidth_bytes_per_s=100e9, peer_bandwidth_bytes_per_s=25e9, gpu_latency_s=2e-6, nics=nics,
        host_bandwidth_bytes_per_s=64e9,
        nic_kind="ib", nic_bandwidth_bytes_per_s=12.5e9, nic_latency_s=3e-6,
    )  # fmt: skip
    return Cluster(name="nodes", groups=(group,), fabric=Fabric(**fabric))
