"""Flight records, torch's and ours: who has not come, who calls otherwise, who waits for whom over several groups."""

import contextlib
import json
import os
import pickle
import random

import pytest

from meshwright.errors import InputError
from meshwright.files import to_json
from meshwright.postmortem.flight_records.pickles import load_plain
from meshwright.postmortem.flight_records.versions import status_by_name
from meshwright.postmortem.inputs import examine_files

from .made import DONE, answer, entry, groups, judge, out_of_memory, record, records, timed_out, told

OPEN = entry(4, 5, "all_reduce", 333, 333, "started")
LATER = {"state": "scheduled", "time_discovered_started_ns": None}
PIPE = {"group": ("5", "pp"), "pg_id": 5, "p2p": 1}
PIPES = groups(g5=range(4))
MESH = groups(g1=(0, 1), g2=(2, 3), g3=(0, 2), g4=(1, 3))
PAIRS = groups(g1=(0, 1), g2=(0, 1))


def receives(rank, source, state="started"):
    return entry(4, 0, f"recv {rank}<-{source}", 10, 10, state, **PIPE)


def sends(rank, target, numel=10):
    return entry(4, 0, f"send {rank}->{target}", numel, numel, "started", **PIPE)


def queued(rank, target):
    """A send behind another transfer on its stream."""
    return entry(5, 0, f"send {rank}->{target}", 10, 10, "scheduled", **PIPE | {"p2p": 2})


def within(name, seq, state="started", number=4, operation="all_reduce"):
    return entry(number, seq, operation, 5, 5, state, group=(name, "sub"), pg_id=int(name))


def old(seq, name, state="completed", pg_id=0, number=None):
    """An entry of version 1: one number for collectives, sends and receives, and a group by a number of the process."""
    return {
        "record_id": seq - 1 if number is None else number,
        "pg_id": pg_id,
        "seq_id": seq,
        "profiling_name": f"nccl:{name}",
        "input_sizes": [[3]],
        "output_sizes": [[3]],
        "state": state,
        "retired": state == "completed",
    }


def version_1(entries_of_rank, config_of_rank):
    return {
        f"nccl_trace_rank_{rank}": pickle.dumps(
            {"version": "1.4", "entries": entries, "pg_config": config_of_rank(rank)}, protocol=2
        )
        for rank, entries in entries_of_rank.items()
    }


def of_pair(seq, state):
    """A call in one of two groups of the same name, of ranks 0 and 1 and of ranks 2 and 3."""
    return entry(4 + seq, seq, "all_reduce", 5, 5, state, group=("tp", "tp"), pg_id=1)


def pair_of(rank):
    return {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "tp": {"name": "tp", "desc": "tp", "ranks": "[0, 1]" if rank < 2 else "[2, 3]"}}  # fmt: skip


NOT_COUNTED = {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1}


def ours(rank, ended):
    flights = [{"sequence": 4, "operation": "all_reduce", "size_bytes": 4096, "started_s": 1.0, "ended": True}]
    if not ended:
        flights.append({"sequence": 5, "operation": "all_reduce", "size_bytes": 4096, "started_s": 2.0, "ended": False})
    told = {"name": "world", "description": "", "arrivals": {"0": 5, "1": 5, "2": 4}, "flights": flights}
    return json.dumps({"rank": rank, "pid": 1, "reason": "", "written_s": 10.0, "groups": [told]})


CASES = {
    "who has not come is named": (
        records({0: [*DONE, OPEN], 1: [*DONE, OPEN], 2: DONE, 3: [*DONE, OPEN]}),
        answer("absent", 2, 5),
    ),
    "another type is a difference of sizes": (
        records(
            {
                r: [*DONE, entry(4, 5, "all_reduce", 333, 333, "started", dtype="Half" if r == 1 else "Float")]
                for r in range(4)
            }
        ),
        answer("sizes", 1, 5),
    ),
    "another size of a reduce-scatter is named": (
        records(
            {r: [*DONE, entry(4, 5, "_reduce_scatter_base", 400 + 400 * (r == 1), 100, "started")] for r in range(4)}
        ),
        answer("sizes", 1, 5),
    ),
    "two against two cannot be told": (
        records({r: [*DONE, entry(4, 5, "_all_gather_base", 100 - 10 * (r < 2), 400, "started")] for r in range(4)}),
        answer("sizes", None, 5, unknown=True),
    ),
    "all-to-all may differ from rank to rank": (
        records({r: [*DONE, entry(4, 5, "all_to_all", 100 + r, 103 - r, "started")] for r in range(4)}),
        answer("stuck", None, 5),
    ),
    "uneven parts that add up to what each gets are meant": (
        records({r: [*DONE, entry(4, 5, "all_gather", 90 + 10 * r, 420, "started")] for r in range(4)}),
        answer("stuck", None, 5),
    ),
    "a batch of sends and receives without its parts is no collective": (
        records({r: [*DONE, entry(4, 0, "coalesced", 0, 0, "completed", p2p=1 + r), OPEN] for r in range(4)}),
        answer("stuck", None, 5),
    ),
    "who left a call out is named": (
        records(
            {
                r: [*DONE, entry(4, 5, "_all_gather_base", 10, 40, "started")]
                if r == 2
                else [*DONE, OPEN, entry(5, 6, "_all_gather_base", 10, 40, "scheduled")]
                for r in range(4)
            }
        ),
        answer("desync", 2, 5),
    ),
    "the root of a broadcast may leave before all have come": (
        records(
            {
                0: [*DONE, entry(4, 5, "broadcast", 9, 9, "completed"), entry(5, 6, "all_reduce", 9, 9, "started")],
                1: [*DONE, entry(4, 5, "broadcast", 9, 9, "started")],
                2: [*DONE, entry(4, 5, "broadcast", 9, 9, "started")],
                3: DONE,
            }
        ),
        answer("absent", 3, 5),
    ),
    "who is still in a call that the others have left is named": (
        records(
            {
                r: [*DONE, OPEN]
                if r == 2
                else [
                    *DONE,
                    {**OPEN, "state": "completed", "retired": True},
                    entry(5, 6, "all_reduce", 9, 9, "started"),
                ]
                for r in range(4)
            }
        ),
        answer("absent", 2, 6),
    ),
    "whose device has not begun what those of the others have is held by something before": (
        records({r: [*DONE, {**OPEN, **LATER} if r == 3 else OPEN] for r in range(4)}),
        answer("absent", 3, 5),
    ),
    "two groups in a circle blame nobody": (
        records({0: [*DONE, within("1", 1)], 1: [*DONE, within("2", 1)], 2: DONE, 3: DONE}, PAIRS),
        answer("circle", None, 1),
    ),
    "two streams that queue behind each other are a circle": (
        records(
            {
                0: [*DONE, within("1", 1), within("2", 1, "scheduled", 5)],
                1: [*DONE, within("2", 1), within("1", 1, "scheduled", 5)],
                2: DONE,
                3: DONE,
            },
            PAIRS,
        ),
        answer("circle", None, 1),
    ),
    "three groups in a circle blame nobody": (
        records(
            {**{r: [*DONE, within(str(r + 1), 1)] for r in range(3)}, 3: DONE}, groups(g1=(0, 1), g2=(1, 2), g3=(0, 2))
        ),
        answer("circle", None, 1),
    ),
    "a later call that overtakes an open one on every rank is a circle of streams": (
        records(
            {
                r: [
                    *DONE,
                    entry(4, 5, "_reduce_scatter_base", 40, 10, "scheduled"),
                    entry(5, 6, "_all_gather_base", 10, 40, "started"),
                ]
                for r in range(4)
            }
        ),
        answer("circle", None, 5),
    ),
    "over several groups the one that waits for nobody is named": (
        records({0: [*DONE, within("3", 7)], 1: [*DONE, within("4", 7)], 2: [*DONE, within("2", 9)], 3: DONE}, MESH),
        answer("absent", 3, 7),
    ),
    "an idle default group does not hide a waiting one": (
        records({0: [*DONE, within("1", 1)], 1: DONE, 2: DONE, 3: DONE}, MESH),
        answer("absent", 1, 1),
    ),
    "in a pipeline the first that sends nothing is named": (
        records({0: DONE, **{r: [*DONE, receives(r, r - 1)] for r in (1, 2, 3)}}, PIPES),
        answer("absent", 0, 1),
    ),
    "a send whose receiver does not come names the receiver": (
        records({0: [*DONE, sends(0, 1)], 1: DONE, 2: DONE, 3: DONE}, PIPES),
        answer("absent", 1, 1),
    ),
    "two that both receive first are a circle": (
        records({0: [*DONE, receives(0, 1)], 1: [*DONE, receives(1, 0)], 2: DONE, 3: DONE}, PIPES),
        answer("circle", None, 1),
    ),
    "two that both receive first, with their sends in the queue behind, are a circle": (
        records(
            {
                **{rank: [*DONE, receives(rank, 1 - rank), queued(rank, 1 - rank)] for rank in (0, 1)},
                **dict.fromkeys((2, 3), DONE),
            },
            PIPES,
        ),
        answer("circle", None, 1),
    ),
    "a send and a receive that meet are stuck": (
        records({0: [*DONE, sends(0, 1)], 1: [*DONE, receives(1, 0)], 2: DONE, 3: DONE}, PIPES),
        answer("stuck", None, 1),
    ),
    "a send and a receive of different sizes name neither": (
        records({0: [*DONE, sends(0, 1, 20)], 1: [*DONE, receives(1, 0)], 2: DONE, 3: DONE}, PIPES),
        answer("sizes", None, 1, unknown=True),
    ),
    "a peer counts inside its group": (
        records({4: DONE, 5: [*DONE, receives(1, 0)]}, {"5": {"name": "5", "desc": "pp", "ranks": "[4, 5]"}}),
        answer("absent", 4, 1),
    ),
    "the parts of a coalesced call end with it": (
        records(
            {
                r: [
                    *DONE,
                    entry(4, 5, "_all_gather_base", 10, 40, "scheduled"),
                    entry(5, 5, "_all_gather_base", 12, 48, "scheduled"),
                    entry(6, 5, "coalesced", 0, 0, "completed"),
                    *([entry(7, 6, "all_reduce", 9, 9, "started")] if r != 1 else []),
                ]
                for r in range(4)
            }
        ),
        answer("absent", 1, 6),
    ),
    "records without starts are read by what has ended": (
        records(
            {
                r: [
                    *({**e, "time_discovered_started_ns": None} for e in DONE),
                    *([{**OPEN, "state": "scheduled", "time_discovered_started_ns": None}] if r else []),
                ]
                for r in range(4)
            }
        ),
        answer("absent", 0, 5),
    ),
    "half of the records missing names nobody": (
        records(
            {r: [*DONE, OPEN] for r in range(4)},
            {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(8)))}},
        ),
        answer("absent", None, 5, unknown=True),
    ),
    "records of which nothing is open are no proof of health": (
        records(dict.fromkeys(range(4), DONE)),
        answer("none", unknown=True),
    ),
    "records of hosts lie in folders of their own": (
        {f"node{r // 2}/nccl_trace_rank_{r}": record([*DONE, OPEN] if r != 3 else DONE) for r in range(4)},
        answer("absent", 3, 5),
    ),
    "torch 2.2 wrote seq_id and no groups": (
        {
            f"nccl_trace_rank_{r}": pickle.dumps(
                {
                    "version": "1.5",
                    "entries": [
                        {
                            "record_id": i,
                            "pg_id": 0,
                            "seq_id": i + 1,
                            "process_group": ("0", "default_pg"),
                            "profiling_name": "nccl:all_reduce",
                            "input_sizes": [[3]],
                            "output_sizes": [[3]],
                            "state": "completed" if i < 2 else "started",
                        }
                        for i in range(3 if r else 2)
                    ],
                }
            )
            for r in range(3)
        },
        answer("absent", 0, 3),
    ),
    "version 1 tells groups by numbers that differ from process to process": (
        version_1(
            {
                0: [old(1, "all_reduce"), old(1, "all_reduce", "started", pg_id=1, number=1)],
                1: [old(1, "all_reduce"), old(1, "all_reduce", "completed", pg_id=1, number=1)],
                2: [old(1, "all_reduce")],
                3: [old(1, "all_reduce"), old(1, "all_reduce", "completed", pg_id=1, number=1)],
            },
            lambda rank: {0: [0, 1, 2, 3], 1: [rank % 2, rank % 2 + 2]},
        ),
        answer("absent", 2, 1),
    ),
    "version 1 counts sends and receives among the collectives": (
        version_1(
            {
                0: [old(1, "send 0->1"), old(2, "all_reduce", "started")],
                1: [old(1, "recv 1<-0"), old(2, "send 1->2"), old(3, "all_reduce", "started")],
                2: [old(1, "recv 2<-1")],
            },
            lambda rank: {0: [0, 1, 2]},
        ),
        answer("absent", 2, 1),
    ),
    "groups of other ranks may bear one name": (
        {
            f"nccl_trace_rank_{r}": record(
                [*DONE, of_pair(1, "completed"), *([of_pair(2, "started")] if r > 1 else [])], pair_of(r)
            )
            for r in range(4)
        },
        answer("stuck", None, 2),
    ),
    "a call that NCCL's watchdog retired when it timed out is open": (
        {
            f"nccl_trace_rank_{r}": record(
                [*DONE, {**OPEN, "retired": True}] if r != 2 else DONE,
                status={"0": {**NOT_COUNTED, "last_enqueued_collective": 5, "last_completed_collective": 5}},
            )
            for r in range(4)
        },
        answer("absent", 2, 5),
    ),
    "a rank whose record shows that it called nothing is behind": (
        {
            f"nccl_trace_rank_{r}": record(
                [entry(0, 1, "all_reduce", 9, 9, "started")] if r != 1 else [], status={"0": NOT_COUNTED}
            )
            for r in range(4)
        },
        answer("absent", 1, 1),
    ),
    "a rank that is known to be behind is named before one without a record": (
        records({0: [*DONE, OPEN], 1: DONE, 3: [*DONE, OPEN]}),
        answer("absent", 1, 5),
    ),
    "counts by numbers of the process are no groups of that name": (
        {
            f"nccl_trace_rank_{r}": record(
                DONE,
                {"0": pair_of(0)["0"], "2": {"name": "2", "desc": "dp", "ranks": f"[{r % 2}, {r % 2 + 2}]"}},
                {
                    "0": {**NOT_COUNTED, "last_enqueued_collective": 4, "last_completed_collective": 4},
                    "1": NOT_COUNTED,
                    "2": {**NOT_COUNTED, "last_enqueued_collective": 9 - r, "last_completed_collective": 8 - r},
                },
            )
            for r in range(4)
        },
        answer("none", unknown=True),
    ),
    "our own records say who is behind": (
        {f"flight-{rank}.json": ours(rank, rank == 2) for rank in range(3)},
        answer("absent", 2, 5),
    ),
    "the partner of a rank that waits alone is the one without a record": (
        records({0: [*DONE, within("1", 5)], 2: DONE, 3: DONE}, {}),
        answer("absent", 1, 5),
    ),
    "a log says why the rank is missing from the records": (
        {**records({0: [*DONE, OPEN], 1: [*DONE, OPEN], 2: DONE, 3: [*DONE, OPEN]}), "train.log": [out_of_memory(2)]},
        answer("device_memory", 2, 5),
    ),
    "a rank without a record is not blamed where a call that all others have come to stands still": (
        {
            name: data
            for name, data in records(
                {r: [*DONE, within("1" if r < 2 else "2", 1), {**OPEN, **LATER, "record_id": 5}] for r in range(4)},
                MESH,
            ).items()
            if not name.endswith("_3")
        },
        answer("stuck", None, 1),
    ),
    "a rank without a record may wait for the one that stands in no call": (
        records({0: [*DONE, within("1", 1)], 2: DONE}, groups(g1=(0, 1), g2=(1, 2), g3=(0, 2))),
        answer("absent", None, 1, unknown=True),
    ),
    "a rank without a record is not blamed where its partner calls otherwise than the pairs beside it": (
        records(
            {
                0: [*DONE, within("1", 1, operation="broadcast")],
                2: [*DONE, within("2", 1, "completed"), OPEN],
                3: [*DONE, within("2", 1, "completed"), OPEN],
            },
            MESH,
        ),
        answer("absent", None, 1, unknown=True),
    ),
    "who printed nothing and is in the call by its record is not blamed": (
        {**records({r: [*DONE, OPEN] for r in range(4)}), "train.log": [timed_out(r, 5) for r in (0, 1, 3)]},
        answer("stuck", None, 5),
    ),
    "a record that is cut off does not make its rank the suspect": (
        {**records({r: [*DONE, OPEN] for r in (0, 1, 3)}), "nccl_trace_rank_2": record(DONE)[:300]},
        answer("absent", None, 5, unknown=True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_records_tell(name, tmp_path):
    files, wanted = CASES[name]

    assert told(judge(tmp_path, files), wanted) == wanted


class Hostile:
    """A value whose pickle would run a command."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (os.system, (f"touch {self.target}",))


def test_a_pickle_that_names_a_function_is_refused_by_that_name_and_runs_nothing(tmp_path):
    target = tmp_path / "ran"
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [Hostile(target)]}))

    with pytest.raises(InputError, match=r"nccl_trace_rank_0: refused: the pickle names (posix|os)\.system"):
        examine_files([tmp_path])
    assert not target.exists()


def test_a_refused_record_is_named_and_its_rank_is_not_blamed(tmp_path):
    files = records({rank: [*DONE, OPEN] for rank in (0, 1, 3)})

    verdict = judge(tmp_path, {**files, "nccl_trace_rank_2": pickle.dumps({"entries": [Hostile(tmp_path / "ran")]})})

    assert verdict.rank is None
    assert any("system" in what for what in verdict.missing)


def test_plain_containers_and_numbers_are_loaded():
    value = {"a": [1, 2.5, None, True], "b": ("x", {"c": 1}), "n": 2**70}

    assert load_plain(pickle.dumps(value), where="x") == value


@pytest.mark.parametrize("value", [complex(1, 2), {1, 2}.__class__, bytearray(b"x"), range(3)])
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(InputError, match="refused"):
        load_plain(pickle.dumps(value), where="x")


def test_damaged_records_end_in_one_line_or_a_verdict(tmp_path):
    rng = random.Random(7)
    whole = record([*DONE, OPEN])
    path = tmp_path / "nccl_trace_rank_0"
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(2, len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data))
        with contextlib.suppress(InputError):
            examine_files([tmp_path])


def test_a_place_in_the_memo_that_would_take_memory_is_refused():
    with pytest.raises(InputError, match="LONG_BINPUT"):
        load_plain(b"\x80\x02}r\xff\xff\xff\x7f.", where="x")


def test_a_value_that_holds_itself_many_times_over_is_not_spelt_out(tmp_path):
    value = ["x"]
    for _ in range(60):
        value = [value, value]
    (tmp_path / "nccl_trace_rank_0").write_bytes(record([{**OPEN, "profiling_name": value}]))

    with pytest.raises(InputError, match="unknown form"):
        examine_files([tmp_path])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("profiling_name", "nccl:all_reduce\ud800", "entries[0].profiling_name: character 16 is half of a pair"),
        ("process_group", ["\udc00", "default"], "entries[0].process_group[0]: character 1 is half of a pair"),
        ("collective_seq_id", 10**30, "entries[0].collective_seq_id: a number of 100 bits"),
        ("time_created_ns", float("inf"), "entries[0].time_created_ns: inf is no finite number"),
    ],
)
@pytest.mark.parametrize("form", ["json", "pickle"])
def test_a_record_that_holds_what_nobody_can_write_is_named_as_not_read(form, key, value, said, tmp_path):
    damaged = {"entries": [OPEN | {key: value}], "pg_status": {}, "pg_config": {}}
    data = json.dumps(damaged).encode() if form == "json" else pickle.dumps(damaged)
    (tmp_path / "nccl_trace_rank_0").write_bytes(data)
    (tmp_path / "nccl_trace_rank_1.json").write_text(json.dumps({"entries": [OPEN], "pg_status": {}, "pg_config": {}}))

    verdict = to_json(examine_files([tmp_path]))

    assert said in verdict


def test_a_log_of_docker_with_half_a_character_is_read(tmp_path):
    line = "RuntimeError: CUDA out of memory \ud800"
    (tmp_path / "rank_0.log").write_text(json.dumps({"log": f"[rank0]: {line}\n", "stream": "stderr"}) + "\n")

    assert "out of memory ?" in to_json(examine_files([tmp_path]))


@pytest.mark.parametrize(
    ("operation", "numel", "kind"), [("all_gather", 1000, "desync"), ("all_reduce", 1064, "sizes")]
)
def test_of_a_pair_that_disagrees_the_pairs_beside_it_say_who_is_wrong(operation, numel, kind, tmp_path):
    config = {str(n): {"name": str(n), "desc": "dp", "ranks": str([n, n + 4])} for n in range(4)}
    files = {}
    for rank in range(8):
        group = (str(rank % 4), "dp")
        name, size = (operation, numel) if rank == 6 else ("all_reduce", 1000)
        calls = [entry(0, 1, "all_reduce", 512, 512, "completed", group=group, pg_id=rank % 4)]
        calls.append(entry(1, 2, name, size, size, "started", group=group, pg_id=rank % 4))
        files[f"nccl_trace_rank_{rank}"] = record(calls, config)
    verdict = judge(tmp_path, files)
    assert (verdict.kind, verdict.rank, verdict.seq, verdict.unknown) == (kind, 6, 2, False)
    assert "the other groups of dp" in verdict.because


def test_counts_of_groups_by_their_names_are_those_groups():
    config = {name: {"name": name, "desc": name, "ranks": "[2, 3]"} for name in "024"}
    status = {name: {"last_completed_collective": n} for n, name in enumerate(config)}
    assert status_by_name({"pg_status": status}, config, {"1": "2", "2": "4"}) == status


@pytest.mark.parametrize(
    "name", ["nccl_trace_rank_{}", "rank{}_fr.json", "fr-rank-{}-night.pkl", "rank_n1_{}", "{}.json"]
)
def test_the_rank_of_a_record_may_stand_anywhere_in_the_name_of_its_file(name, tmp_path):
    files = {name.format(rank): record([*DONE, OPEN] if rank != 2 else DONE) for rank in range(4)}

    assert told(judge(tmp_path, files), wanted := answer("absent", 2, 5)) == wanted


def of_small_ring(last_enqueued, entries, *, completed=7):
    """A record whose ring has lost the call in which its rank stands: the counts alone know of it."""
    counts = {"last_enqueued_collective": last_enqueued, "last_started_collective": 8}
    return record(entries, status={"0": {**counts, "last_completed_collective": completed}})


def test_the_call_that_a_small_ring_has_lost_is_the_one_after_the_last_that_was_completed(tmp_path):
    queue = [entry(seq, seq, "all_reduce", 1000, 1000, "scheduled") for seq in range(10, 14)]
    done = [entry(seq, seq, "all_reduce", 1000, 1000, "completed") for seq in range(4, 8)]
    files = {f"nccl_trace_rank_{rank}": of_small_ring(12 + rank, queue[rank:]) for rank in (0, 1, 3)}
    verdict = judge(tmp_path, {**files, "nccl_trace_rank_2": of_small_ring(7, done)})

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("absent", (2,), 8)


def test_records_that_are_named_after_processes_are_of_the_ranks_that_a_launcher_tells(tmp_path):
    pids = {0: 5210, 1: 5211, 2: 5210, 3: 5219}  # of two hosts
    log = [f"INFO [omi{rank // 2}] worker pid={pid} -> RANK={rank} WORLD_SIZE=4" for rank, pid in pids.items()]
    log += [f"setup rank={rank} pid={pids[rank]} host=omi{rank // 2}" for rank in (0, 2)]
    files = {
        f"trace_omi{rank // 2}_{pid}.pkl": record([*DONE, entry(4, 5, "all_reduce", 9 + (rank == 2), 9, "started")])
        for rank, pid in pids.items()
    }
    verdict = judge(tmp_path, {**files, "launch.log": log})

    assert (verdict.kind, verdict.blamed) == ("sizes", (2,))


def test_a_record_of_a_process_whose_rank_is_not_told_is_said_not_to_be_read(tmp_path):
    verdict = judge(tmp_path, {"trace_omi0_5210.pkl": record(DONE), "job.log": [timed_out(0, 5), timed_out(1, 5)]})

    assert any("trace_omi0_5210.pkl: no rank in it" in lack for lack in verdict.missing)
