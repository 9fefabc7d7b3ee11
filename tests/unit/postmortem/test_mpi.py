"""Errors of MPI: a fabric, a peer that is gone, a message of another size, by MPICH (Cray's, Intel's) and Open MPI."""

import pytest

from .made import answer, judge, told

STEPS = [f"epoch 2 batch {batch} loss 3.{batch}" for batch in range(5)]


def cray(rank, why, host="nid00"):
    """What a rank of Cray's MPICH prints when it gives up."""
    return [
        f"MPICH ERROR [Rank {rank}] [job id 77120.0] [Tue Nov  3 04:10:2{rank % 10} 2026] [{host}{rank}] - Abort(1360)"
        f" (rank {rank} in comm 0): Fatal error in PMPI_Allreduce: Other MPI error, error stack:",
        "PMPI_Allreduce(472)...............: MPI_Allreduce(sbuf=MPI_IN_PLACE, rbuf=0x14, count=12, op=MPI_SUM) failed",
        "MPID_Progress_wait(186)...........:",
        f"MPIDI_OFI_handle_cq_error(1059): OFI poll failed (ofi_events.c:1061:MPIDI_OFI_handle_cq_error:{why})",
    ]


def intel(rank, why, comm="0"):
    return [
        f"Abort(1681039) on node {rank} (rank {rank} in comm {comm}): Fatal error in PMPI_Recv: Other MPI error, error"
        " stack:",
        "PMPI_Recv(171)..........................: MPI_Recv(buf=0x7f, count=1, MPI_INT, src=0, tag=7) failed",
        f"MPIDI_CH3_PktHandler_EagerShortSend(363): {why}",
    ]


def gave_up(*ranks, code=255):
    return [f"srun: error: nid00{rank}: task {rank}: Exited with exit code {code}" for rank in ranks]


UNDELIVERED, NOT_FOUND = "Input/output error - UNDELIVERABLE", "Input/output error - PTLTE_NOT_FOUND"
TOO_LONG = "Message from rank 0 and tag 7 truncated; 64 bytes received but buffer size is 4"
CASES = {
    "a fabric that did not deliver, to several ranks": (
        [*STEPS, *cray(31, UNDELIVERED), *cray(4, UNDELIVERED), *gave_up(31, 4)],
        answer("network"),
    ),
    "to one": ([*STEPS, *cray(31, UNDELIVERED), *gave_up(31)], answer("network")),
    "a peer that had been killed": (
        ["srun: error: nid009: task 9: Killed", *cray(31, NOT_FOUND), *gave_up(31)],
        answer("killed", 9),
    ),
    "a peer that is gone, of which nothing is told": (
        [*STEPS, *cray(31, NOT_FOUND), *cray(4, NOT_FOUND), *gave_up(31, 4)],
        answer("network", unknown=True),
    ),
    "a message of another size": ([*STEPS, *intel(3, TOO_LONG)], answer("sizes", unknown=True)),
    "a message that is too large, by Open MPI": (
        [
            *STEPS,
            "[elm-4:9109] *** An error occurred in MPI_Recv",
            "[elm-4:9109] *** reported by process [2088763393,2]",
            "[elm-4:9109] *** on communicator MPI_COMM_WORLD",
            "[elm-4:9109] *** MPI_ERR_TRUNCATE: message truncated",
        ],
        answer("sizes", unknown=True),
    ),
    "a host without a route, by Open MPI": (
        [
            *STEPS,
            "[elm-4][[31,1],5][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] connect() to 10.0.0.5"
            " failed: No route to host (113)",
        ],
        answer("network"),
    ),
    "a queue that gave up, by UCX": (
        [*STEPS, "[elm-4:12:0:12] rc_verbs_iface.c:65 send completion with error: transport retry counter exceeded"],
        answer("network"),
    ),
    "by a rank of another communicator": ([*STEPS, *intel(3, TOO_LONG, "84000005")], answer("sizes", unknown=True)),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_of_mpi_say_why_a_rank_gave_up(name, tmp_path):
    lines, wanted = CASES[name]
    verdict = judge(tmp_path, lines)
    assert told(verdict, wanted) == wanted, str(verdict)


def test_unlike_counts_of_a_collective_are_told_with_the_rank_that_met_them(tmp_path):
    job = [
        *STEPS,
        "Abort(940175375) on node 5 (rank 5 in comm 0): Fatal error in internal_Allreduce: Other MPI error, error"
        " stack:",
        "internal_Allreduce(104)...............: MPI_Allreduce(sbuf=0x7f, rbuf=0x7f, count=96, MPI_FLOAT) failed",
        "MPIR_Allreduce_intra_recursive(210)...: message sizes do not match across processes in the collective routine:"
        " Received 512 but expected 384",
    ]
    verdict = judge(tmp_path, job)
    wanted = answer("sizes", unknown=True)

    assert told(verdict, wanted) == wanted
    assert "512 bytes came to rank 5 where 384 were expected" in verdict.because
