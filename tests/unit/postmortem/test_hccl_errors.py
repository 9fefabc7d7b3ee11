"""Codes of HCCL, Ascend's collectives, in the words of its versions: arguments that differ, links, memory, set-up."""

import pytest

from .made import answer, judge, told

HEAD = "[rank{0}]: EI0005: [PID: 20{0}] 2026-11-20-10:20:3{0}.741.599 "
FORMS = {
    "an operator": "The parameters of operator HcomAllReduce are inconsistent between ranks, parameter count is {1} on"
    " the local rank and {2} on the remote rank.",
    "a group": "The arguments for collective communication are inconsistent between ranks, operator HcomAllReduce,"
    " group hccl_world_group, parameter count, local rank {1}, remote rank {2}.",
    "ends": "The arguments for collective communication are inconsistent between ranks:parameter count, local end {1},"
    " remote end {2}",
    "brackets": "The arguments for collective communication are inconsistent between ranks:tag[AllReduce_10.0.0.5%en0_6"
    "0000_0_1], parameter[count], local[{1}], remote[{2}]",
    "brackets and spaces": "The arguments for collective communication are inconsistent between ranks: tag"
    " [HcomAllReduce_66294_0], parameter [count], local [{1}], remote [{2}]",
    "CANN's log": "[rank_consistentcy_checker.cc:429] [3743][InitChannelStage][ParameterConflict]CMD information count"
    " check fail. local[{1}], remote[{2}]",
}
LINK = (
    "[rank{0}]:         Transport init error. Reason: [Create][DestLink]Create Dest error! createLink para:rank[{0}]-"
    "localUserrank[{0}]-localIpAddr[10.0.0.5], dst_rank[{1}]-remoteUserrank[{1}]-remote_ip_addr[10.0.0.5]"
)


def unlike(form, rank, own, other, *, to=None):
    """What a rank says of an argument that differs, and of the rank that brought the other."""
    lines = [HEAD.format(rank) + form.format(rank, own, other)]
    return lines if to is None else [*lines, LINK.format(rank, to)]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("is_linked", [True, False])
def test_the_one_rank_with_another_count_is_named(form, is_linked, tmp_path):
    lines = [line for rank in (0, 1, 3) for line in unlike(form, rank, 512, 96, to=2 if is_linked else None)]
    lines += unlike(form, 2, 96, 512, to=1 if is_linked else None)

    assert told(judge(tmp_path, lines), answer("sizes", 2)) == answer("sizes", 2)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_of_two_ranks_that_differ_none_is_named(form, tmp_path):
    verdict = judge(tmp_path, [*unlike(form, 0, 512, 96, to=1), *unlike(form, 1, 96, 512, to=0)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("sizes", (), True)


def test_a_rank_of_a_larger_job_that_does_not_speak_itself_is_not_named(tmp_path):
    lines = [line for rank in (4, 5) for line in unlike(FORMS["ends"], rank, 512, 96, to=0)]

    assert not judge(tmp_path, ["world_size=8", *lines]).blamed


def test_places_in_a_smaller_group_are_no_ranks(tmp_path):
    lines = [line for rank in (4, 5) for line in unlike(FORMS["ends"], rank, 512, 96)]
    lines = [*lines, LINK.format(1, 2).replace("[rank1]", "[rank5]"), *unlike(FORMS["ends"], 6, 96, 512)]

    assert judge(tmp_path, ["world_size=8", *lines]).blamed == (6,)


def test_the_one_rank_that_called_another_collective_is_named(tmp_path):
    text = FORMS["CANN's log"].replace("count", "tag")
    lines = [*(HEAD.format(rank) + text.format(rank, "AllReduce_g1_0", "AllGather_g1_0") for rank in (0, 1, 3))]
    lines.append(HEAD.format(2) + text.format(2, "AllGather_g1_0", "AllReduce_g1_0"))

    assert told(judge(tmp_path, lines), answer("desync", 2)) == answer("desync", 2)


CODES = {
    "EI0011": ("Failed to allocate 209715200 bytes of NPU memory.", "device_memory"),
    "EI0007": ("Failed to allocate resource [Notify] with info [x]. Reason: Resources are exhausted.", "exception"),
    "EI0014": ("Value [10.0.0.9] for ranktable variable [device_ip] is invalid. Expected value: [x].", "exception"),
    "EI0019": (
        "Failed to enable listening for the host network adapter socket. Reason: the port is taken",
        "exception",
    ),
}
FORMS_OF_CODES = [
    "{code}: [PID: 202] 2026-11-20-10:20:31.741.599 {text}",
    "[PID: 202] 2026-11-20-10:20:31.741.599 Some_Error({code}): {text}",
]


@pytest.mark.parametrize("form", FORMS_OF_CODES)
@pytest.mark.parametrize("code", CODES)
def test_a_code_of_a_fault_of_its_own_is_of_the_rank_that_prints_it(code, form, tmp_path):
    text, kind = CODES[code]
    lines = [f"[rank2]: {form.format(code=code, text=text)}", f'[rank0]: search for the keyword "{code}" on a.example']

    assert told(judge(tmp_path, ["world_size=4", *lines]), answer(kind, 2)) == answer(kind, 2)


LINKS = {
    "EI0009": "Device 3 transport init error. Reason: link.",
    "EI0010": "P2P communication failed. Reason: x",
    "EI0012": "SDMA memory copy task exception occurred. Remote rank: [4]. Base information: [x].",
    "EI0015": "Failed to collect cluster information of the communicator based on rootInfo detection. Reason: timeout.",
}


@pytest.mark.parametrize("code", LINKS)
def test_a_code_that_a_peer_which_is_gone_brings_about_names_nobody(code, tmp_path):
    verdict = judge(tmp_path, ["world_size=4", f"[rank2]: {code}: [PID: 202] 2026-11-20-10:20:31.7 {LINKS[code]}"])

    assert (verdict.blamed, verdict.unknown) == ((), True)
    assert code in verdict.because


def refused(rank, *, own=("10.4.0.1", 4), other=("10.4.0.2", 5)):
    """What a rank says of packets that are not answered, with both ends."""
    return (
        f"[rank{rank}]: [PID: 2] 2026-11-20-10:20:31.001 Execution_Error_ROCE_CQE(EI0013): An error CQE occurred during"
        f" operator execution. Local information: server {own[0]}, device ID {own[1]}, device IP 29.6.1.4. Peer"
        f" information: server {other[0]}, device ID {other[1]}, device IP 29.6.2.5."
    )


RANKS = "rank table: server 10.4.0.1 devices 0-7 -> ranks 0-7, server 10.4.0.2 devices 0-7 -> ranks 8-15"
BOTH = [refused(4), refused(13, own=("10.4.0.2", 5), other=("10.4.0.1", 4))]


def table(*down, form="numbers"):
    """What hccn_tool says of the ports of two servers, of which some are down."""
    lines = []
    for server in ("10.4.0.1", "10.4.0.2"):
        lines.append(f"== server {server}")
        if form == "loop":
            lines.append("for i in $(seq 0 7); do hccn_tool -i $i -link -g; done")
        for npu in range(8):
            state = "DOWN" if (server, npu) in down else "UP"
            lines += [f"# hccn_tool -i {npu} -link -g"] if form == "commands" else []
            lines.append(f"[{npu}] link status: {state}" if form == "numbers" else f"link status: {state}")
    return lines


@pytest.mark.parametrize("form", ["numbers", "commands", "loop"])
@pytest.mark.parametrize(("down", "rank"), [(("10.4.0.2", 5), 13), (("10.4.0.1", 4), 4)])
def test_the_npu_whose_port_is_down_is_the_broken_end_of_a_link(down, rank, form, tmp_path):
    verdict = judge(tmp_path, {"job.log": [RANKS, *BOTH], "ports.txt": table(down, form=form)})

    assert (verdict.kind, verdict.blamed) == ("network", (rank,))


@pytest.mark.parametrize(
    "down", [[], [("10.4.0.1", 4), ("10.4.0.2", 5)], [("10.4.0.2", 6)]], ids=["none", "both", "another"]
)
def test_of_two_ends_that_are_alike_none_is_named(down, tmp_path):
    verdict = judge(tmp_path, {"job.log": [RANKS, *BOTH], "ports.txt": table(*down)})

    assert (verdict.kind, verdict.blamed) == ("network", ())


def test_a_port_that_is_down_is_no_fault_of_a_job_whose_links_hold(tmp_path):
    lines = [RANKS, "[rank3]: ValueError: bad sample"]

    assert judge(tmp_path, {"job.log": lines, "ports.txt": table(("10.4.0.2", 5))}).blamed == (3,)


def test_of_many_ranks_it_is_said_how_many_call_the_same(tmp_path):
    form = FORMS["ends"]
    lines = [line for rank in range(20) for line in unlike(form, rank, 96 if rank == 7 else 512, 1)]

    verdict = judge(tmp_path, lines)

    assert verdict.blamed == (7,)
    assert verdict.because == "rank 7 calls a call count 96; 19 ranks call a call count 512"


def test_an_error_that_refers_to_hccls_message_is_its_consequence(tmp_path):
    raised = ["Traceback (most recent call last):", '  File "fit.py", line 2, in <module>', "    fit()"]
    raised += ["RuntimeError: Preprocess failed before run graph 0. The details refer to 'Ascend Error Message'."]
    raised += ["", "- Ascend Error Message:", "-" * 20]
    said = {
        rank: FORMS["brackets and spaces"].format(rank, *((96, 512) if rank == 2 else (512, 96))) for rank in (0, 2, 3)
    }
    late = "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time."
    logs = {f"train_rank{rank}.log": [*raised, f"EI0005: {said[rank]}" if rank in said else late] for rank in range(4)}

    assert told(judge(tmp_path, logs), answer("sizes", 2)) == answer("sizes", 2)


def test_an_error_that_refers_to_another_message_of_ascends_is_its_ranks_own(tmp_path):
    raised = ["Traceback (most recent call last):", '  File "fit.py", line 2, in <module>', "    fit()"]
    raised += ["RuntimeError: Launch failed. The details refer to 'Ascend Error Message'.", "E60114: bad shape"]

    verdict = judge(tmp_path, {"train_rank0.log": ["step 3 loss 2"], "train_rank1.log": raised})

    assert (verdict.kind, verdict.blamed) == ("exception", (1,))
