"""Machines of EC2 by their numbers: EFA's errors name a peer so, and other lines join the number to a host."""

import pytest

from .made import joined, judge

IDS = {f"ip-10-0-0-{n}": f"i-0{n}f3e0b6a8d4c55{n}3" for n in range(4)}
HOSTS = list(IDS)


def ranks(host, n):
    return [joined(2 * n + at, 8, host=host, pid=500 + at) for at in range(2)]


def lost(host, peer, code=4124, pid=500):
    """What the plugin for EFA prints on a host whose peer no longer answers."""
    return (
        f"{host}:{pid}:77 [0] int process_err_completion(nccl_net_ofi_rdma_device_t*, fid_cq*, int):1012 NCCL WARN"
        f" NET/OFI Request 0x7f1a completed with error. RC: 103. Error: {code} (Unresponsive receiver (connection"
        f" previously established) My EFA addr: fi_addr_efa://[fe80::40:1]:0:164 My host id: {IDS[host]} Peer EFA addr:"
        f" fi_addr_efa://[fe80::7f:9]:0:740 Peer host id: {peer}). Completed length: 0"
    )


def job(*complaints, **others):
    """The logs of four hosts of two ranks, with the complaints of each."""
    logs = {f"{host}.log": ranks(host, n) for n, host in enumerate(HOSTS)}
    for host, peer in complaints:
        logs[f"{host}.log"].append(lost(host, peer))
    return {**logs, **{f"{name}.txt": lines for name, lines in others.items()}}


THIRD = [(host, IDS[HOSTS[2]]) for host in HOSTS[:2]]
JOINS = {
    "a list of hosts": [f"{host}  {own}  p5.48xlarge  us-east-2b" for host, own in IDS.items()],
    "a list of instances": [f"{own},{host},running" for host, own in IDS.items()],
    "Kubernetes' nodes": [f"{host}.ec2.internal   aws:///us-east-2b/{own}" for host, own in IDS.items()],
    "the cloud's description": [
        line
        for host, own in IDS.items()
        for line in (f'      "InstanceId": "{own}",', f'      "PrivateDnsName": "{host}.us-east-2.compute.internal",')
    ],
}


@pytest.mark.parametrize("lines", JOINS.values(), ids=JOINS)
def test_an_instance_that_several_hosts_lose_is_the_ranks_of_its_host(lines, tmp_path):
    verdict = judge(tmp_path, job(*THIRD, nodes=lines))

    assert (verdict.kind, verdict.blamed) == ("network", (4, 5)), verdict.because


def test_the_one_host_that_does_not_say_its_own_number_is_the_peer_whom_all_others_lose(tmp_path):
    verdict = judge(tmp_path, job(*THIRD, (HOSTS[3], IDS[HOSTS[2]])))

    assert (verdict.kind, verdict.blamed) == ("network", (4, 5)), verdict.because


UNTOLD = {
    "no line joins the number to a host": job(*THIRD),
    "the handshake failed, so that the peer has no number": job(
        *((host, "N/A") for host in HOSTS[:2]), nodes=JOINS["a list of hosts"]
    ),
    "one host alone complains": job(THIRD[0], nodes=JOINS["a list of hosts"]),
    "the peer complains, too": job(*THIRD, (HOSTS[2], IDS[HOSTS[0]]), nodes=JOINS["a list of hosts"]),
    "several peers": job(THIRD[0], (HOSTS[1], IDS[HOSTS[3]]), nodes=JOINS["a list of hosts"]),
}


@pytest.mark.parametrize("files", UNTOLD.values(), ids=UNTOLD)
def test_a_peer_whose_end_of_the_link_is_not_told_to_be_the_broken_one_is_not_named(files, tmp_path):
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == ("network", ())
