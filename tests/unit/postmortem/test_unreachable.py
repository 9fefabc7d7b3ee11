"""Hosts that cannot be reached, told from hosts on which nobody listens yet."""

import pytest

from .made import judge, timed_out

GAVE_UP = (
    "[E socket.cpp:747] [c10d] The client socket has timed out after 60s while trying to connect to (big-a, 29400)."
)
RAISED = (
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed."
)


def tried(why, host="big-a"):
    return f"[W socket.cpp:697] [c10d] The client socket has failed to connect to [{host}]:29400 (errno: {why})."


NOT_REACHED = {
    "no route": [tried("113 - No route to host"), GAVE_UP],
    "no answer": [tried("110 - Connection timed out"), tried("110 - Connection timed out"), RAISED],
    "no network": [tried("101 - Network is unreachable", "10.4.0.9"), GAVE_UP],
    "the address of one family": [tried("113 - No route to host", "::ffff:10.4.0.9"), RAISED],
    "in one error": [f"torch.distributed.DistNetworkError: {tried('113 - No route to host')[29:]}"],
    "MLX between Macs": [
        *(f"[{name}] [ring] Rank {rank} Attempt 4 wait 8000 ms (error: 60 )" for rank, name in enumerate("xyz")),
        *(
            f"[{name}] RuntimeError: [ring] Couldn't connect (error: {code})"
            for name, code in zip("xyz", (65, 60, 51), strict=True)
        ),
        *(f"[WARN] Node with rank {rank} exited with code 1" for rank in range(3)),
    ],
    "MLX on Linux, without its launcher": ["RuntimeError: [jaccl] Couldn't connect (error: 113)"],
    "the queue pairs of MLX": ["ValueError: [jaccl] Changing queue pair to RTR failed with errno 60 dst_lid=0"],
    "ssh of a launcher": ["n2: ssh: connect to host n2 port 22: No route to host"],
    "a daemon of MPI": [
        "A process or daemon was unable to complete a TCP connection",
        "to another process:",
        "  Local host:    n1",
        "  Remote host:   n2",
    ],
}


@pytest.mark.parametrize("lines", NOT_REACHED.values(), ids=NOT_REACHED)
def test_a_host_that_cannot_be_reached_is_a_fault_of_the_network_and_of_no_rank(lines, tmp_path):
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed) == ("network", ())


def gave_up(cause, error="urllib3.exceptions.MaxRetryError"):
    pool = "HTTPConnectionPool(host='kv-store', port=2379): Max retries exceeded with url: /version"
    frames = ["Traceback (most recent call last):", '  File "bin/torchrun", line 8, in <module>', "    main()"]
    return [*frames, f"{error}: {pool} (Caused by {cause})"]


BEFORE_ANY_RANK = {
    "no answer": (gave_up("ConnectTimeoutError(<x>, 'timed out. (connect timeout=60)')"), "host kv-store"),
    "no route": (gave_up("NewConnectionError('<x>: [Errno 113] No route to host')"), "No route to host"),
    "no address": (gave_up("NameResolutionError(\"Failed to resolve 'kv-store' ([Errno -2])\")"), "name kv-store"),
    "passed on": (gave_up("ConnectTimeoutError(<x>)", "etcd.EtcdConnectionFailed"), "host kv-store"),
    "of gRPC": (
        ["grpc.RpcError: failed to connect to all addresses; last error: ipv4:10.4.0.9:2379: No route to host"],
        "host 10.4.0.9",
    ),
    "of Redis": (["redis.ConnectionError: Error 110 connecting to kv-store:6379. Connection timed out."], "kv-store"),
}


@pytest.mark.parametrize(("lines", "said"), BEFORE_ANY_RANK.values(), ids=BEFORE_ANY_RANK)
def test_a_service_that_a_launcher_cannot_reach_before_there_are_ranks_is_a_fault_of_the_network(lines, said, tmp_path):
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed) == ("network", ())
    assert said in verdict.because


REFUSED_OR_A_RANKS = {
    "refused": (gave_up("NewConnectionError('<x>: [Errno 111] Connection refused')"), ()),
    "of a rank": (
        [f"[rank3]: {line}" for line in gave_up("ConnectTimeoutError(<x>)", "requests.ConnectTimeout")],
        (3,),
    ),
    "after steps": ([*(f"step {n} loss 1.0" for n in range(4)), *gave_up("ConnectTimeoutError(<x>)")], ()),
}


@pytest.mark.parametrize(("lines", "ranks"), REFUSED_OR_A_RANKS.values(), ids=REFUSED_OR_A_RANKS)
def test_the_error_of_a_service_that_answers_or_that_a_rank_asks_stays_an_exception(lines, ranks, tmp_path):
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed) == ("exception", ranks)


OTHERWISE = {
    "refused to MLX": ["[rank3]: RuntimeError: [ring] Couldn't connect (error: 61)", "[rank1]: step 0"],
    "MLX in the end": ["[ring] Attempt 2 wait 2000 ms (error: 65 )", *(f"step {n} loss 1.0" for n in range(1, 9))],
    "refused": [tried("111 - Connection refused"), GAVE_UP],
    "refused in the end": [tried("113 - No route to host"), tried("111 - Connection refused"), GAVE_UP],
    "an address of the link": [
        tried("101 - Network is unreachable", "fe80::1"),
        tried("111 - Connection refused", "10.4.0.9"),
        GAVE_UP,
    ],
    "reached in the end": [tried("113 - No route to host"), *(f"step {n} loss 1.0" for n in range(1, 9))],
    "reached, and lost after many steps": [
        tried("113 - No route to host"),
        *(f"step {n} loss 1.0" for n in range(1, 9)),
        "torch.distributed.DistNetworkError: Connection reset by peer",
    ],
    "tried by a person in the end": [
        *(timed_out(rank, 7) for rank in (0, 1, 3)),
        "$ ssh n2 nvidia-smi",
        "ssh: connect to host n2 port 22: No route to host",
    ],
    "reached, and a rank is missing": [
        tried("113 - No route to host"),
        *(timed_out(rank, 7) for rank in (0, 1, 3)),
    ],
}


@pytest.mark.parametrize("lines", OTHERWISE.values(), ids=OTHERWISE)
def test_a_host_that_answers_or_is_reached_later_is_no_fault_of_the_network(lines, tmp_path):
    assert judge(tmp_path, lines).kind != "network"


def reset(rank, *, prefix=True, why="Connection reset by peer"):
    """What a rank raises that asked the store, which rank 0 holds, for the id of a communicator."""
    said = f"[{rank}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store"
    head = f"[rank{rank}]: " if prefix else ""
    return (
        f"{head}RuntimeError: {said} by key '0', but store->get('0') got error: {why}. This may indicate a possible"
        " application crash on rank 0 or a network set up issue."
    )


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("why", ["Connection reset by peer", "failed to recv, got 0 bytes", "Broken pipe"])
def test_the_store_whose_connections_all_others_lose_ended_with_rank_0(tmp_path, prefix, why):
    verdict = judge(tmp_path, [reset(rank, prefix=prefix, why=why) for rank in (1, 2, 3)])

    assert (verdict.kind, verdict.blamed) == ("killed", (0,))


def test_one_rank_that_lost_the_store_blames_nobody(tmp_path):
    verdict = judge(tmp_path, [reset(1), "[rank0]: step 1 loss 2.0", "[rank2]: step 1 loss 2.0"])

    assert (verdict.blamed, verdict.unknown) == ((), True)


def test_what_rank_0_raised_before_its_store_was_lost_is_the_cause(tmp_path):
    raised = ["Traceback (most recent call last):", '  File "a.py", line 4, in <module>', "KeyError: 'x'"]
    verdict = judge(tmp_path, [*(f"[rank0]: {line}" for line in raised), reset(1), reset(2), reset(3)])

    assert (verdict.kind, verdict.blamed) == ("exception", (0,))
