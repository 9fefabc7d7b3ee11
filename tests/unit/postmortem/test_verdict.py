"""The verdict as text, JSON and page; the rules; exit codes; speed."""

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from meshwright.cli import run_command
from meshwright.errors import InputError
from meshwright.postmortem.inputs import examine_files
from meshwright.postmortem.nouns.evidence import MOST_LINES, Evidence
from meshwright.postmortem.nouns.next_steps import NEXT
from meshwright.postmortem.nouns.verdict import MEANINGS, NOT_TOLD
from meshwright.postmortem.page.page import page_of
from meshwright.postmortem.page.timeline import drawing
from meshwright.postmortem.rules import RULES
from meshwright.report.page import page_html
from meshwright.units import shortened

from .made import DONE, WORLD, entry, failed_at, judge, out_of_memory, record, signalled, timed_out
from .test_cases import ANSWERS, CASES
from .test_logs import CASES as LOGS

WAITING = [timed_out(rank, 9) for rank in (0, 1, 3)]


def write(folder, lines):
    path = folder / "train.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_every_rule_decides_some_case(tmp_path):
    used = {examine_files([CASES / name]).rule for name in ANSWERS}
    for index, (files, _) in enumerate(LOGS.values()):
        folder = tmp_path / str(index)
        folder.mkdir()
        used.add(judge(folder, files).rule)
    (tmp_path / "limit").mkdir()
    limit = "slurmstepd: error: *** JOB 1 ON a CANCELLED AT 2026-11-20T11:16:01 DUE TO TIME LIMIT ***"
    used.add(judge(tmp_path / "limit", [limit]).rule)
    (tmp_path / "ended").mkdir()
    closed = "[rank1]: ncclRemoteError: A call failed possibly due to a network error"
    used.add(judge(tmp_path / "ended", [limit, closed]).rule)
    (tmp_path / "after").mkdir()
    used.add(judge(tmp_path / "after", ["torch.distributed.DistBackendError: NCCL error in: a.cpp:1, internal"]).rule)
    (tmp_path / "stack").mkdir()
    dumps = {
        f"nccl_trace_rank_{r}": record(
            [
                *DONE,
                {
                    **DONE[0],
                    "collective_seq_id": 5,
                    "state": "started",
                    "retired": False,
                    "time_discovered_completed_ns": None,
                },
            ]
        )
        for r in (0, 1, 3)
    }
    stack = (CASES / "logs" / "py_spy" / "rank2.txt").read_text()
    used.add(judge(tmp_path / "stack", {**dumps, "nccl_trace_rank_2": record(DONE), "rank2.txt": stack}).rule)

    (tmp_path / "slower").mkdir()
    slower = [f"iter: {step} step_time={1.0 if step < 6 else 2.5}" for step in range(12)]
    used.add(judge(tmp_path / "slower", slower).rule)
    (tmp_path / "data").mkdir()
    data = [f"step {step} data_time: 2.1 s | step_time: 2.7 s" for step in range(12)]
    used.add(judge(tmp_path / "data", data).rule)
    (tmp_path / "well").mkdir()
    used.add(judge(tmp_path / "well", ["9 pretrain COMPLETED 0:0 01:00:00"]).rule)
    (tmp_path / "pods").mkdir()
    used.add(judge(tmp_path / "pods", ["lm-a 1/1 Running 0 31m", "lm-b 0/1 Pending 0 31m"]).rule)
    (tmp_path / "network").mkdir()
    used.add(judge(tmp_path / "network", ["qdisc netem 1: dev eth1 root limit 1000 delay 9ms"]).rule)

    (tmp_path / "lost").mkdir()
    used.add(judge(tmp_path / "lost", [f"step {step} loss nan" for step in range(9)]).rule)

    (tmp_path / "worker").mkdir()
    died = ["  pid: 904", "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"]
    used.add(judge(tmp_path / "worker", [*died, f"{timed_out(2, 40, place=1)} [repeated 3x across cluster]"]).rule)

    assert used == {rule.name for rule in RULES}


def test_every_rule_has_a_reason_and_stands_in_the_documentation():
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()

    assert all(len(rule.reason.split()) > 6 for rule in RULES)
    assert [rule.name for rule in RULES if f"| {rule.name} | {rule.reason} |" not in page] == []


def test_every_kind_has_a_meaning_and_something_to_try():
    assert MEANINGS.keys() == NEXT.keys()


@pytest.mark.parametrize(
    ("warning", "told", "not_told"),
    [
        (
            "socketStartConnect: Connect to 172.17.0.1<4123> failed : Connection timed out",
            "docker0",
            "NCCL_IB",
        ),
        ("NET/IB: Got completion from peer 10.0.0.1<4> with status=12 opcode=0", "NCCL_IB", "NCCL_SOCKET_IFNAME"),
    ],
    ids=["sockets", "InfiniBand"],
)
def test_a_link_that_fails_is_followed_by_what_to_try_on_its_kind(tmp_path, warning, told, not_told):
    steps = " ".join(judge(tmp_path, [f"n2:70:79 [0] misc/net.cc:484 NCCL WARN {warning}"]).next)

    assert told in steps
    assert not_told not in steps


def test_the_text_says_who_where_why_and_what_next(tmp_path):
    text = str(judge(tmp_path, [out_of_memory(2), *WAITING]))

    assert text.startswith("rank 2: device_memory (ran out of GPU memory)\n")
    assert "because: out of GPU memory: 336.00 MiB wanted, 141.25 MiB free [first-fault]" in text
    assert "in: all_reduce #9" in text
    assert "waiting: ranks 0, 1, 3" in text
    assert "train.log:1: [rank2]: torch.OutOfMemoryError" in text
    assert "try: " in text


def test_ranks_in_a_row_are_written_short():
    assert shortened((0, 1, 2, 3, 5, 7, 8)) == "0-3, 5, 7, 8"


def test_json_has_the_keys_and_exit_1_says_that_there_is_a_verdict(tmp_path, capsys):
    path = write(
        tmp_path, [line for rank in (0, 1, 3) for line in (timed_out(rank, 9), failed_at(rank, WORLD, 9, 9, 8))]
    )

    code = run_command(["doctor", "--json", "--logs", str(path)])

    found = json.loads(capsys.readouterr().out)
    assert code == 1
    assert found["kind"] == "absent"
    assert (found["rank"], found["unknown"], found["seq"]) == (2, False, 9)
    assert (found["group"], found["collective"]) == ("0 (default_pg)", "all_reduce")
    assert found["evidence"][0].keys() >= {"file", "line", "text"}
    assert found["missing"] == ["the log of rank 2"]
    assert found["next"]


def test_exit_0_where_nothing_shows_a_fault(tmp_path, capsys):
    assert run_command(["doctor", "--logs", str(write(tmp_path, ["step 1 loss 2.3"]))]) == 0
    assert "nothing in these files shows a fault" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01\x02\x03" * 100])
def test_exit_2_where_nothing_could_be_read(content, tmp_path, capsys):
    path = tmp_path / "train.log"
    if content is not None:
        path.write_bytes(content)

    assert run_command(["doctor", "--logs", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_several_paths_are_read_as_one_job(tmp_path, capsys):
    paths = []
    for rank in range(4):
        paths.append(tmp_path / f"rank{rank}.log")
        paths[-1].write_text("step 1\n" if rank == 2 else timed_out(rank, 9, prefix=False) + "\n")

    assert run_command(["doctor", "--json", "--logs", *map(str, paths)]) == 1
    assert json.loads(capsys.readouterr().out)["rank"] == 2


def test_a_run_and_logs_are_not_asked_for_at_once(tmp_path, capsys):
    assert run_command(["doctor", "--run", "X", "--logs", str(write(tmp_path, WAITING))]) == 2
    assert "not both" in capsys.readouterr().err


def test_a_line_without_end_takes_no_time(tmp_path):
    start_s = time.process_time()

    verdict = judge(tmp_path, ["mlx5_0 ice ib0 " * 200_000, *WAITING])

    assert (verdict.kind, verdict.rank) == ("absent", 2)
    assert time.process_time() - start_s < 5


def test_a_path_without_logs_is_refused(tmp_path, capsys):
    assert run_command(["doctor", str(tmp_path)]) == 2
    assert "--logs" in capsys.readouterr().err


def test_the_page_marks_the_blamed_rank_and_escapes_what_it_quotes(tmp_path):
    hostile = "<script>alert(1)</script>"
    path = write(tmp_path, [out_of_memory(2) + hostile, *WAITING])

    assert run_command(["doctor", "--html", str(tmp_path / "page.html"), "--logs", str(path)]) == 1

    page = (tmp_path / "page.html").read_text()
    assert "rank 2: to blame" in page
    assert "rank 0: waits" in page
    assert hostile not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_page_that_cannot_be_written_is_one_line(tmp_path, capsys):
    path = write(tmp_path, WAITING)

    assert run_command(["doctor", "--html", str(tmp_path / "no" / "page.html"), "--logs", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_of_more_files_than_a_job_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.postmortem.files.MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.log").write_text("x")

    with pytest.raises(InputError, match="more than 3 files"):
        examine_files([tmp_path])


def test_ten_thousand_lines_of_1024_ranks_take_less_than_five_seconds(tmp_path):
    lines = [f"[rank{rank}]: step {step} loss 2.1" for rank in range(1024) for step in range(8)]
    for rank in set(range(1024)) - {517}:
        lines += [timed_out(rank, 5000), failed_at(rank, WORLD, 5000, 5003, 4999)]
    path = write(tmp_path, lines)

    start_s = time.process_time()
    verdict = examine_files([path])

    assert (verdict.kind, verdict.rank, verdict.seq) == ("absent", 517, 5000)
    assert len(lines) > 10_000
    assert time.process_time() - start_s < 5


def test_the_drawing_is_well_formed_and_has_a_row_a_rank(tmp_path):
    verdict = judge(tmp_path, [out_of_memory(2) + ' <&"', *WAITING])

    root = ElementTree.fromstring(drawing(verdict))

    labels = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [label for label in labels if label.startswith("rank")] == [
        "rank 0: waits",
        "rank 1: waits",
        "rank 2: to blame",
        "rank 3: waits",
    ]


def test_no_lane_of_the_drawing_begins_within_the_words_before_it(tmp_path):
    verdict = msgspec.structs.replace(judge(tmp_path, WAITING), rank=1023, ranks=(1023,), waiting=(0, 1))

    root, space = ElementTree.fromstring(drawing(verdict)), "{http://www.w3.org/2000/svg}"
    words = "rank 1023: to blame, silent"

    assert words in [text.text for text in root.iter(f"{space}text")]
    assert all(float(line.get("x1")) > 4 + 6.5 * len(words) for line in root.iter(f"{space}line"))


def marks_px(verdict):
    """Return where the mark of each line stands, by the rank of its row's label."""
    root, space = ElementTree.fromstring(drawing(verdict)), "{http://www.w3.org/2000/svg}"
    labels = {int(text.get("y")) - 4: text.text for text in root.iter(f"{space}text")}
    return {labels[int(mark.get("cy"))]: float(mark.get("cx")) for mark in root.iter(f"{space}circle")}


def test_marks_of_files_that_no_clock_joins_stand_in_no_order(tmp_path):
    lines = dict.fromkeys((0, 2, 10), "nccl:all_reduce #9 of group 0: 8 to 8 elements, started")
    evidence = tuple(Evidence(f"trace_rank_{rank}", 0, text, rank) for rank, text in sorted(lines.items(), key=str))
    verdict = judge(tmp_path, [out_of_memory(2), *WAITING])
    verdict = msgspec.structs.replace(verdict, rank=2, ranks=(), waiting=(0, 10), evidence=evidence)

    page = page_html(page_of(verdict))

    assert len(set(marks_px(verdict).values())) == 1
    assert "earlier to later in each file by itself" in page
    assert "In the order of time" not in page
    assert "No clock joins the files" in page


def test_marks_of_one_file_stand_in_its_order(tmp_path):
    verdict = judge(tmp_path, [out_of_memory(2), *WAITING])
    verdict = msgspec.structs.replace(
        verdict, evidence=tuple(Evidence("a.log", number, "", rank) for number, rank in enumerate((0, 1, 3)))
    )

    places = marks_px(verdict)

    assert sorted(places.values()) == [places[f"rank {rank}: waits"] for rank in (0, 1, 3)]
    assert "In the order of time" in page_html(page_of(verdict))


def test_of_many_lines_those_of_the_blamed_are_shown(tmp_path):
    world = [failed_at(rank, WORLD, 9, 9, 8) for rank in range(100) if rank != 77]
    lines = [*(timed_out(rank, 9) for rank in range(100) if rank != 77), *world, signalled(77, WORLD, 8, 8)]

    verdict = judge(tmp_path, lines)

    assert verdict.rank == 77
    assert any("[rank77]" in line.text for line in verdict.evidence)
    assert "[rank77]" in str(verdict)
    assert len(verdict.evidence) == MOST_LINES


def test_where_a_limit_of_time_ended_the_job_nobody_needs_to_ask_who_did(tmp_path):
    ended = "slurmstepd: error: *** STEP 7.0 ON g1 CANCELLED AT 2026-11-20T10:20:00 DUE TO TIME LIMIT ***"

    verdict = judge(tmp_path, ["step 7 loss 2.0", ended])

    assert verdict.kind == "killed"
    assert verdict.next[0].startswith("ask for more time")


@pytest.mark.parametrize(
    "lines",
    [
        ["RuntimeError: Stream synchronize timeout. rtDeviceSynchronize execute failed"],
        [timed_out(0, 9), timed_out(1, 9)],
        ["n1:7:8 [2] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"],
    ],
    ids=["a stream of an NPU", "time-outs", "memory of an unknown rank"],
)
def test_where_nobody_is_blamed_nobody_is_sent_to_the_blamed_rank(lines, tmp_path):
    verdict = judge(tmp_path, lines)

    assert verdict.blamed == ()
    assert not any("blamed rank" in step or "that rank" in step for step in verdict.next)


def test_waits_of_which_nobody_is_told_do_not_say_that_one_never_came(tmp_path):
    headline = judge(tmp_path, [timed_out(0, 9)]).headline()

    assert headline == f"who is to blame cannot be told: absent ({NOT_TOLD})"


def test_a_rank_that_left_no_record_may_have_come_to_the_call_too(tmp_path):
    call = entry(0, 4, "all_reduce", 8, 8, "started")
    verdict = judge(tmp_path, {f"nccl_trace_rank_{rank}": record([call]) for rank in range(3)})

    assert verdict.blamed == (3,)
    assert "or what it wrote is not here" in verdict.headline()
