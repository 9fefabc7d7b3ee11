"""MSCCL++ execution plans: proved, refused, and judged as a machine that runs them in random orders judges them."""

import copy
import json
import random
from collections import Counter

import pytest

from meshwright.cli import run_command
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.mscclpp.exporter import to_mscclpp
from meshwright.collectives.mscclpp.importer import from_mscclpp
from meshwright.collectives.proof.verify import ScheduleError, verify
from meshwright.errors import InputError

from .mscclpp_mutants import mutated
from .mscclpp_plans import (
    all_gather,
    all_reduce,
    all_reduce_packets,
    all_to_all,
    gpu,
    op,
    packets_between_two,
    piece,
    plan,
    ports_between_two,
    right,
    shared_blocks,
    shared_copies,
    shared_packets,
)

PLANS = {
    "all_gather in place": all_gather(3),
    "all_gather out of place": all_gather(3, inplace=False),
    "all_reduce": all_reduce(3),
    "all_reduce with packets": all_reduce_packets(3),
    "all_to_all": all_to_all(3),
    "two blocks and a semaphore": shared_blocks(),
    # of the shapes of reduce_pack and multi_node_transfer of microsoft/mscclpp, test/executor-tests/execution-plans
    "packets of two GPUs": packets_between_two(),
    "ports of two GPUs": ports_between_two(),
    "packets of blocks that share a run": shared_packets(),
    "copies of blocks that share a run": shared_copies(),
}
ORDERS = 10  # random ones that the machine tries


def proved(value):
    """Whether a plan is read and proved."""
    try:
        verify(from_mscclpp(value))
    except (ScheduleError, InputError):
        return False
    return True


@pytest.mark.parametrize("name", PLANS)
def test_a_right_plan_is_proved(name):
    assert all(right(PLANS[name], seed) for seed in range(ORDERS))
    verify(from_mscclpp(PLANS[name]))


@pytest.mark.parametrize("name", ["all_gather in place", "ports of two GPUs"])
def test_a_plan_of_the_first_reader_names_the_type_of_its_channels_otherwise(name):
    old = copy.deepcopy(PLANS[name]) | {"name": None}
    for each in old["gpus"]:
        for channels in each["channels"]:
            channels["type"] = channels.pop("channel_type")

    assert from_mscclpp(old).rounds == from_mscclpp(PLANS[name]).rounds


def mutants(value):
    """Each plan with one operation left out, two neighbours exchanged, or one index moved."""
    for g, gpu_ in enumerate(value["gpus"]):
        for b, block in enumerate(gpu_["threadblocks"]):
            for number, found in enumerate(block["ops"]):
                made = copy.deepcopy(value)
                del made["gpus"][g]["threadblocks"][b]["ops"][number]
                yield made
                if number:
                    made = copy.deepcopy(value)
                    ops = made["gpus"][g]["threadblocks"][b]["ops"]
                    ops[number - 1], ops[number] = ops[number], ops[number - 1]
                    yield made
                for end in ("src_buff", "dst_buff"):
                    for n, part in enumerate(found.get(end, ())):
                        made = copy.deepcopy(value)
                        moved = made["gpus"][g]["threadblocks"][b]["ops"][number][end][n]
                        moved["index"] = part["index"] - 1 if part["index"] else 1
                        yield made


@pytest.mark.parametrize("name", PLANS)
def test_no_mutant_that_goes_wrong_on_a_machine_is_proved(name):
    wrong = 0
    for mutant in mutants(PLANS[name]):
        try:
            ran = all(right(mutant, seed) for seed in range(ORDERS))
        except KeyError:  # outside its buffer
            ran = False
        wrong += not ran
        assert ran or not proved(mutant)
    assert wrong > 3


EXPORTED = [
    to_mscclpp(build_schedule(collective, name, ranks))
    for collective, name, ranks in [
        ("all_reduce", "ring", 3),
        ("all_reduce", "halving_doubling", 4),
        ("all_reduce", "naive", 3),
        ("all_gather", "doubling", 4),
        ("all_gather", "pairwise", 3),
        ("reduce_scatter", "ring", 3),
    ]
]


@pytest.mark.parametrize("seed", range(3))
def test_seeded_damage_is_judged_as_the_machine_judges_it(seed):
    rng = random.Random(seed)
    found = Counter()
    for number in range(140):
        whole = rng.choice([*PLANS.values(), *EXPORTED])
        mutant, kind = mutated(rng, whole)
        if mutant == whole:
            continue
        try:
            ran = all(right(mutant, order) for order in range(ORDERS))
        except (KeyError, IndexError, ValueError):  # outside its buffers, or another number of chunks
            ran = False
        told = proved(mutant)
        found[told, ran] += 1
        assert ran or not told, (number, kind)
    assert found[False, False] > 40
    # what is refused and never went wrong: orders that so few did not find, and equal values written twice
    assert found[False, True] < 0.1 * found.total()


def without_nop(value, block, number):
    """The plan without the number-th nop of a block of each GPU."""
    made = copy.deepcopy(value)
    for g in made["gpus"]:
        ops = g["threadblocks"][block]["ops"]
        del ops[[n for n, one in enumerate(ops) if one["name"] == "nop"][number]]
    return made


@pytest.mark.parametrize(
    ("value", "block", "number", "words"),
    [
        (all_reduce(2), 0, 2, "may end before"),  # between a sum and the signal that tells of it
        (shared_blocks(), 0, 0, "a race: nothing orders a write and a read"),  # between a copy and the release
        (shared_blocks(), 1, 0, "a race: nothing orders a write and a read"),  # between the acquire and a put
        (shared_blocks(), 1, 3, "a race: nothing orders a write and a read"),  # between a wait and a sum
    ],
)
def test_threads_that_nothing_holds_together_are_a_race(value, block, number, words):
    loose = without_nop(value, block, number)

    assert not all(right(loose, order) for order in range(ORDERS))
    with pytest.raises(ScheduleError, match=words):
        from_mscclpp(loose)


def test_a_put_over_a_port_goes_where_its_channel_goes():
    astray, unordered = ports_between_two(), ports_between_two()
    for g in astray["gpus"][0]["threadblocks"][:1]:
        g["ops"][4]["channel_ids"] = [1]
    with pytest.raises(InputError, match="channel 1: the block has no such port channel"):
        from_mscclpp(astray)

    block = unordered["gpus"][0]["threadblocks"][0]
    block["channels"][0]["channel_ids"] = [0, 1]
    block["ops"][4] = block["ops"][4] | {"channel_ids": [1]}  # the signal that tells of it goes over the other
    with pytest.raises(ScheduleError, match="gpu 1 may end before gpu 0 block 0 op 4"):
        from_mscclpp(unordered)


def test_a_race_within_a_block_says_what_its_threads_need():
    data = to_mscclpp(build_schedule("all_reduce", "ring", 2))
    for g in data["gpus"]:
        block = g["threadblocks"][0]
        block["ops"] = [one for one in block["ops"] if one["name"] != "nop"]

    with pytest.raises(ScheduleError, match="its threads need a nop between them"):
        from_mscclpp(data)


def over_ports(*, flushed=True):
    """Two GPUs that put over a port channel and write to the source again."""
    gpus = []
    for rank in (0, 1):
        ops = [op("put", [piece("i", 0)], [piece(0, 0)], channel_ids=[0]), op("signal", channel_ids=[0])]
        ops += [op("flush", channel_ids=[0])] if flushed else []
        ops += [op("wait", channel_ids=[0]), op("re", [piece("i", 0), piece("s", 0)], [piece("i", 0)])]
        made = gpu(rank, [ops], [1 - rank], [(1 - rank, "s")], inputs=1, outputs=1, scratch=1)
        gpus.append(json.loads(json.dumps(made).replace('"memory"', '"port"')))
    return plan("allreduce", gpus)


def test_what_a_proxy_still_reads_is_not_written_before_a_flush():
    verify(from_mscclpp(over_ports()))
    with pytest.raises(ScheduleError, match="a race: nothing orders a write and a read of i"):
        from_mscclpp(over_ports(flushed=False))


def test_a_signal_and_a_wait_need_no_barrier_of_threads_between_them():
    loose = without_nop(all_reduce(3), 0, 0)

    assert all(right(loose, order) for order in range(ORDERS))
    verify(from_mscclpp(loose))


def test_the_runtime_s_limits_are_named_where_a_plan_is_written_for_it(capsys):
    assert run_command(["collectives", "export", "ring", "--ranks", "5", "--for", "mscclpp"]) == 0
    capsys.readouterr()
    assert run_command(["collectives", "export", "ring", "--ranks", "8", "--for", "mscclpp"]) == 2
    assert "ring: mscclpp does not take it: block 0 of gpu 0 has 100 operations, it takes 64" in capsys.readouterr().err


def test_no_plan_of_ours_has_more_channels_in_an_operation_than_the_runtime_takes():
    data = to_mscclpp(build_schedule("all_gather", "direct", 12))

    verify(from_mscclpp(data))
    widths = [len(o.get("channel_ids", ())) for g in data["gpus"] for b in g["threadblocks"] for o in b["ops"]]
    assert max(widths) == 8
    assert not any(o["name"] == "get" for g in data["gpus"] for b in g["threadblocks"] for o in b["ops"])


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (shared_blocks(acquired=False), ScheduleError, "a race: nothing orders a write and a read of"),
        (shared_blocks(released=False), ScheduleError, "waits for a release that never comes"),
        (
            plan("allreduce", [gpu(0, [[op("wait", channel_ids=[0])]], [0], [], inputs=1, outputs=1)]),
            ScheduleError,
            "waits for a signal of gpu 0 that never comes",
        ),
        (
            plan("allreduce", [gpu(0, [[op("glres")]], [], [], inputs=1, outputs=1)]),
            InputError,
            "glres: a sum in the switch",
        ),
        (
            plan("allreduce", [gpu(0, [[op("copy", [piece("i", 3)], [piece("i", 0)])]], [], [], inputs=1, outputs=1)]),
            InputError,
            "chunks up to 3 of i of gpu 0: it has 1",
        ),
        (plan("allreduce", [gpu(0, [[op("putt")]], [], [], inputs=1, outputs=1)]), InputError, "(did you mean put"),
        (
            plan(
                "allreduce",
                [
                    gpu(
                        r,
                        [[op("get", [piece(0, 1)], [piece("s", 0)])]],
                        [1 - r],
                        [(1 - r, "i")],
                        inputs=2,
                        outputs=2,
                        scratch=1,
                    )
                    for r in (0, 1)
                ],
            ),
            InputError,
            "from chunk 1 to chunk 0: the runtime takes each offset of a get for the other",
        ),
        (
            plan(
                "allreduce",
                [
                    gpu(
                        r,
                        [[op("pws", [piece("i", 0)], [piece(0, 0)], channel_ids=[0])]],
                        [1 - r],
                        [(1 - r, "i")],
                        inputs=2,
                        outputs=2,
                    )
                    for r in (0, 1)
                ],
            ),
            InputError,
            "over a memory channel the runtime puts and does not signal",
        ),
        ({"gpus": [{"id": 0, "inputChunks": 4}]}, InputError, "before 0.7"),
        (plan("allreduce", [gpu(0, [], [], [], inputs=2, outputs=1)]), InputError, "2 input and 1 output chunks"),
    ],
)
def test_what_is_wrong_with_a_plan_is_named(value, error, words):
    with pytest.raises(error) as caught:
        verify(from_mscclpp(value))

    assert words in str(caught.value)


def test_a_relaxed_signal_shows_nobody_what_was_written():
    value = all_gather(2)
    for gpu_ in value["gpus"]:
        for found in gpu_["threadblocks"][0]["ops"]:
            found["name"] = {"signal": "rlxsignal"}.get(found["name"], found["name"])
        gpu_["threadblocks"][0]["ops"] += [op("nop"), op("copy", [piece("o", 1 - gpu_["id"])], [piece("s", 0)])]
        gpu_["scratch_chunks"] = 1

    with pytest.raises(ScheduleError, match="a race"):
        from_mscclpp(value)


def test_a_gpu_that_may_end_before_its_result_is_there_is_named():
    value = all_gather(2)
    del value["gpus"][1]["threadblocks"][0]["ops"][-1]

    with pytest.raises(ScheduleError, match="gpu 1 may end before gpu 0 block 0 op 4 .put. has written to its o"):
        from_mscclpp(value)


def test_blocks_that_share_a_run_make_parts_of_its_chunks():
    value = all_gather(2)
    for gpu_ in value["gpus"]:
        block = gpu_["threadblocks"][0]
        number = next(n for n, found in enumerate(block["ops"]) if found["name"] == "put")
        whole = block["ops"][number]
        block["ops"][number : number + 1] = [whole | {"tbg_info": {"tb_id": n, "tbg_size": 2}} for n in (0, 1)]

    schedule = from_mscclpp(value)

    assert schedule.chunks == 4
    verify(schedule)


def test_who_gets_what_another_block_copied_waits_for_that_block():
    value = shared_copies(waits_for_both=False)

    assert not all(right(value, seed) for seed in range(ORDERS))
    with pytest.raises(ScheduleError, match="a race: nothing orders a write and a read of s"):
        from_mscclpp(value)


def test_the_commands_take_a_plan_as_they_take_xml(tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(all_reduce(3)))

    assert run_command(["collectives", "verify", "--file", str(path)]) == 0
    assert "proved: all_reduce made on 3 ranks" in capsys.readouterr().out
    assert run_command(["collectives", "verify", "--xml", str(path)]) == 0
    assert run_command(["collectives", "draw", "--file", str(path)]) == 0
    assert run_command(["collectives", "export", "--xml", str(path)]) == 0
    assert '<algo name="made"' in capsys.readouterr().out


def test_blocks_of_one_gpu_have_ids_of_their_own():
    data = to_mscclpp(build_schedule("all_reduce", "ring", 4))
    for one in data["gpus"]:
        one["threadblocks"].append({**one["threadblocks"][0], "ops": []})

    with pytest.raises(InputError, match="gpu 0: two blocks have one id"):
        from_mscclpp(data)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_every_algorithm_comes_back_from_its_plan_and_is_proved(collective):
    for name in algorithm_names(collective):
        for ranks in (1, 3, 4):
            found = from_mscclpp(to_mscclpp(build_schedule(collective, name, ranks)))

            proof = verify(found)
            assert (proof.collective, proof.ranks) == (collective, ranks)


def test_a_schedule_that_no_plan_can_say_is_refused_in_one_line(capsys):
    assert run_command(["collectives", "export", "ring", "--ranks", "4", "--for", "mscclpp"]) == 0
    assert json.loads(capsys.readouterr().out)["collective"] == "allreduce"
    assert (
        run_command(
            ["collectives", "export", "pairwise", "--collective", "all_to_all", "--ranks", "4", "--for", "mscclpp"]
        )
        == 2
    )
    assert "expected one of all_gather, all_reduce" in capsys.readouterr().err
