"""Faults of accelerators that are no GPUs, and the ranks that have them by their device files."""

import pytest

from .made import answer, judge, told

FILES = {0: 0, 1: 1, 2: 3, 3: 2}  # a rank's device: not its own number
PLACED = [f"rank {rank}: module {number} opens /dev/accel/accel{number}" for rank, number in FILES.items()]


def broken(rank):
    """What Habana's bridge raises on a rank whose collective failed, for whatever reason."""
    told_by = "FATAL ERROR :: MODULE"
    return [
        f"[rank{rank}]: RuntimeError: [Rank:{rank}] {told_by}:PT_BRIDGE Exception in Lowering thread...",
        f"[rank{rank}]: [Rank:{rank}] {told_by}:PT_DEVHOST synEventSynchronize failed: synStatus 26 [Generic failure].",
        f"[rank{rank}]: Collective call returned error",
    ]


def by_turns(*errors):
    """Errors of several ranks whose lines come one of each at a time."""
    return [line for lines in zip(*errors, strict=True) for line in lines]


HEARTBEAT = "[9001.2] accel accel3: 0000:9a:00.0 Device heartbeat failed! PCI link is healthy"
DISABLED = "[9019.7] habanalabs 0000:9a:00.0 accel3: Failed to reset device, device is disabled"
OLDER = "Nov 20 10:19:31 pier-2 kernel: habanalabs hl3: Device heartbeat failed!"
ACQUIRE = ["Traceback (most recent call last):", '  File "fit.py", line 8, in fit']
ACQUIRE += ["RuntimeError: synStatus=8 [Device not found] Device acquire failed."]
TWO_BITS = '[9001.2] habanalabs hl3: Received H/W interrupt 45 ["HBM_0_DERR"]'
ADDRESSES = {0: "9b", 1: "19", 2: "34", 3: "b3"}
ACQUIRED = [f"[rank {rank}] hpu acquired: HLS_MODULE_ID={rank} pci=0000:{bus}:00.0" for rank, bus in ADDRESSES.items()]
ECC = "[9001.2] habanalabs 0000:34:00.0 accel{number}: HBM3: uncorrectable ECC (SEI) error, channel 2, bank 11"
LATER = [line for rank in (0, 1, 3) for line in broken(rank)]


@pytest.mark.parametrize("kernel", [[HEARTBEAT], [DISABLED], [OLDER], [TWO_BITS]])
@pytest.mark.parametrize("later", [LATER, by_turns(*map(broken, (0, 1, 3)))])
def test_a_gaudi_that_failed_is_of_the_rank_that_opened_its_device_file(tmp_path, kernel, later):
    verdict = judge(tmp_path, {"job.out": [*PLACED, *later], "dmesg.txt": kernel})

    assert told(verdict, answer("device", 2)) == answer("device", 2)


def test_a_gaudi_whose_line_has_its_address_too_is_of_the_rank_that_printed_that(tmp_path):
    kernel = [ECC.format(number=3), "[9001.3] habanalabs 0000:34:00.0 accel3: Going to reset device"]

    verdict = judge(tmp_path, {"job.out": [*ACQUIRED, *LATER], "dmesg.txt": kernel})

    assert told(verdict, answer("device", 2)) == answer("device", 2)


def test_a_gaudi_whose_name_and_address_lead_to_two_ranks_is_nobodys(tmp_path):
    verdict = judge(tmp_path, {"job.out": [*PLACED, *ACQUIRED, *LATER], "dmesg.txt": [ECC.format(number=2)]})

    assert told(verdict, answer("device", unknown=True)) == answer("device", unknown=True)


def test_a_gaudi_that_counts_no_uncorrectable_error_has_not_failed(tmp_path):
    kernel = [ECC.format(number=3).replace("uncorrectable", word) for word in ("correctable", "no uncorrectable")]

    assert judge(tmp_path, {"job.out": [*ACQUIRED, *LATER], "dmesg.txt": kernel}).kind != "device"


MODULES = {
    "by its index": ["$ hl-smi -Q index,module_id -f csv", "index, module_id", "3, 1", "1, 0", "0, 2", "2, 3"],
    "by its address": [
        "[root@pier-2 ~]# hl-smi -Q module_id,bus_id -f csv",
        "module_id, bus_id",
        *(f"{module}, 0000:{bus}:00.0" for module, bus in ((1, "9a"), (0, "19"), (2, "33"), (3, "b3"))),
    ],
}
INDICES = ["$ hl-smi -Q index,bus_id -f csv", "index, bus_id", "3, 0000:9a:00.0", "1, 0000:19:00.0"]
HOSTS = ["pier-1: ranks 0-3", "pier-2: ranks 4-7"]


@pytest.mark.parametrize("table", MODULES.values(), ids=MODULES)
def test_a_gaudi_is_of_the_rank_that_its_module_counts_on_its_host(tmp_path, table):
    named = "hl3" if "index" in table[0] else "0000:9a:00.0"
    kernel = [f"Nov 20 10:19:31 pier-2 kernel: habanalabs {named}: Device heartbeat failed!"]
    verdict = judge(tmp_path, {"job.out": [*HOSTS, *LATER], "pier-2.dmesg": kernel, "pier-2-hl-smi.txt": table})

    assert told(verdict, answer("device", 5)) == answer("device", 5)


def test_the_index_of_a_gaudi_is_not_the_number_by_which_programs_count(tmp_path):
    kernel = ["Nov 20 10:19:31 pier-2 kernel: habanalabs 0000:9a:00.0: Device heartbeat failed!"]
    verdict = judge(tmp_path, {"job.out": [*HOSTS, *LATER], "pier-2.dmesg": kernel, "pier-2-hl-smi.txt": INDICES})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True)


def test_a_gaudi_is_of_the_rank_at_its_place_among_the_modules_that_the_job_is_given(tmp_path):
    table = ["index, module_id", "3, 6", "1, 4", "2, 7", "0, 5"]
    given = ["HABANA_VISIBLE_MODULES=4,5,6,7", "pier-2: ranks 0-3"]
    verdict = judge(tmp_path, {"job.out": [*given, *LATER], "pier-2.dmesg": [OLDER], "hl-smi.txt": table})

    assert told(verdict, answer("device", 2)) == answer("device", 2)


def test_a_gaudi_whose_file_no_rank_is_known_to_open_is_no_ones(tmp_path):
    verdict = judge(tmp_path, {"job.out": LATER, "dmesg.txt": [HEARTBEAT]})

    assert (verdict.kind, verdict.blamed) == ("device", ())


@pytest.mark.parametrize("ranks", [(0,), (0, 1, 3)])
def test_ranks_that_print_that_a_collective_returned_an_error_are_not_blamed_for_it(tmp_path, ranks):
    verdict = judge(tmp_path, {"job.out": [*PLACED, *(line for rank in ranks for line in broken(rank))]})

    assert (verdict.blamed, verdict.unknown) == ((), True)


def test_a_device_that_came_back_from_its_reset_is_no_fault(tmp_path):
    kernel = ["[9001.2] accel accel3: Going to reset device", "[9009.2] accel accel3: Successfully finished resetting"]

    verdict = judge(tmp_path, {"job.out": [*PLACED, *LATER], "dmesg.txt": kernel})

    assert not verdict.blamed


def test_an_npu_that_lost_its_heartbeat_is_of_the_rank_that_prints_it(tmp_path):
    lost = "[rank1]: Device[5] lost heartbeat.[FUNC:SyncTask][FILE:direct_hwts_engine.cc][LINE:407]"

    verdict = judge(tmp_path, {"job.out": [*(f"[rank{rank}]: step 4 loss 2.1" for rank in range(4)), lost]})

    assert told(verdict, answer("device", 1)) == answer("device", 1)


def test_gaudis_that_never_began_are_of_all_the_ranks_that_have_them(tmp_path):
    ranks = {0: 1, 1: 3, 2: 0, 3: 2}
    placed = [f"[1,{rank}]<stdout>:begins on module hl{number}" for rank, number in ranks.items()]
    raised = [line for rank in (3, 0) for line in (f"[1,{rank}]<stderr>:{text}" for text in ACQUIRE)]
    bus = {1: "33", 2: "b4"}
    kernel = [
        f"[72.{n}] habanalabs 0000:{bus[n]}:00.0: Failed to initialize hl{n}. Device is NOT usable !" for n in bus
    ]

    verdict = judge(tmp_path, {"job.out": [*placed, *raised], "dmesg.txt": kernel})

    assert told(verdict, answer("device", ranks=(0, 3))) == answer("device", ranks=(0, 3)), str(verdict)


def test_a_table_of_ranks_and_cards_tells_whose_the_failed_one_is(tmp_path):
    table = [f"rank {rank} -> accel{number} 0000:{ADDRESSES[number]}:00.0" for rank, number in FILES.items()]
    verdict = judge(tmp_path, {"dmesg.txt": [HEARTBEAT], "train.log": table})

    assert (verdict.kind, verdict.blamed) == ("device", (2,))
    assert "hl-smi" in verdict.next[0]
