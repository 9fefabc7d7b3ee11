"""A program in MSCCL's runtimes: bounded connections, flags, foreign elements, what their readers take."""

import re
from collections import deque
from pathlib import Path

import pytest

from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.msccl.exporter import to_msccl_xml
from meshwright.collectives.msccl.file import COLL, read_algo
from meshwright.collectives.msccl.flight import HELD, flight
from meshwright.collectives.msccl.importer import from_msccl_xml, load_msccl_xml
from meshwright.collectives.msccl.limits import LIMITS, kept_apart
from meshwright.collectives.msccl.same import program_difference
from meshwright.collectives.msccl.trip import round_trip
from meshwright.collectives.msccl.write import write_algo
from meshwright.collectives.proof.verify import ScheduleError, verify
from meshwright.collectives.schedules.schedule import Schedule
from meshwright.errors import InputError

HERE = Path(__file__).parent
JUDGED = HERE / "msccl_judged"
FILES = sorted((HERE / "msccl").glob("*.xml"))
RING = to_msccl_xml(build_schedule("all_reduce", "ring", 2))
STEP = (
    '<step s="{s}" type="{kind}" srcbuf="i" srcoff="{at}" dstbuf="i" dstoff="{at}" cnt="1" depid="-1" deps="-1"'
    ' hasdep="0"/>'
)


def refusal(text):
    return LIMITS["rccl"].fault_of(read_algo(text))


def swap(messages: int, protocol: str = "Simple") -> str:
    """Return a program in which both of two ranks send a number of messages before they receive any."""
    steps = [STEP.format(s=i, kind="s", at=i) for i in range(messages)]
    steps += [STEP.format(s=messages + i, kind="rrc", at=i) for i in range(messages)]
    gpus = "".join(
        f'<gpu id="{r}" i_chunks="{messages}" o_chunks="0" s_chunks="0"><tb id="0" send="{1 - r}" recv="{1 - r}"'
        f' chan="0">{"".join(steps)}</tb></gpu>'
        for r in range(2)
    )
    return f'<algo name="swap" proto="{protocol}" nchannels="1" ngpus="2" coll="allreduce" inplace="1">{gpus}</algo>'


def ends(text: str, held: int) -> bool:
    """Return whether a plain run with connections of `held` messages ends; shares no code with the package."""
    algo = read_algo(text)
    blocks = [[g, i, b, 0] for g, gpu in enumerate(algo.gpus) for i, b in enumerate(gpu.blocks)]
    queues, taken, done = {}, set(), set()
    moved = True
    while moved:
        moved = False
        for place, entry in enumerate(blocks):
            gpu, number, block, at = entry
            if at == len(block.steps):
                continue
            step = block.steps[at]
            if step.wait_for and (gpu, *step.wait_for) not in done:
                continue
            into = queues.setdefault((gpu, block.send, block.channel), deque())
            if step.receives and place not in taken:
                source = queues.setdefault((block.receive, gpu, block.channel), deque())
                if not source:
                    continue
                source.popleft()
                taken.add(place)
                moved = True
            if step.sends:
                if len(into) >= held:
                    continue
                into.append(1)
            taken.discard(place)
            done.add((gpu, number, at))
            entry[3] += 1
            moved = True
    return all(at == len(block.steps) for _, _, block, at in blocks)


@pytest.mark.parametrize(("protocol", "held"), sorted(HELD.items()))
def test_as_many_sends_before_a_receive_as_a_connection_holds_are_proved(protocol, held):
    verify(from_msccl_xml(swap(held, protocol)))

    with pytest.raises(ScheduleError, match=f"needs {held + 1} in flight on 0>1 channel 0, .* holds {held}"):
        from_msccl_xml(swap(held + 1, protocol))


def test_four_sends_before_their_receives_hang_with_two_buffers():
    with pytest.raises(ScheduleError, match="needs 4 in flight on 0>1 channel 0"):
        load_msccl_xml(JUDGED / "fifo_4_sends_before_receives.xml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("held", [1, 2, 8])
def test_a_plain_run_with_bounded_connections_agrees(path, held):
    assert (flight(read_algo(path.read_text()), held) is None) == ends(path.read_text(), held)


@pytest.mark.parametrize(("collective", "name"), [(c, n) for c in COLL for n in algorithm_names(c)])
def test_our_own_programs_need_no_more_than_simple_holds(collective, name):
    text = to_msccl_xml(build_schedule(collective, name, 7, root=3))

    assert flight(read_algo(text), HELD["Simple"]) is None
    assert ends(text, HELD["Simple"])


def test_chunks_that_each_fill_a_buffer_need_more():
    algo = read_algo(next(path for path in FILES if "rhd" in path.stem).read_text())

    assert flight(algo, 1) is None
    assert flight(algo, 2, by_chunk=True).needed == 4


def test_right_in_place_alone_is_not_what_outofplace_says():
    with pytest.raises(ScheduleError, match="outofplace is 1, but it is right in place only: .* gpu 0 never writes"):
        load_msccl_xml(JUDGED / "outofplace_flag_not_met.xml")


def test_foreign_elements_are_passed_over_as_the_runtimes_do():
    path = JUDGED / "copy_element_in_place.xml"

    verify(load_msccl_xml(path))
    assert read_algo(path.read_text()).ignored == ("copy",)
    with pytest.raises(InputError, match="<tb> in <algo>"):
        read_algo('<algo ngpus="1" coll="allreduce"><tb id="0"/></algo>')


def test_a_step_that_tells_nobody_leaves_its_waiters_waiting():
    silent = re.sub(r'hasdep="1"', 'hasdep="0"', RING)

    with pytest.raises(ScheduleError, match="deadlock: .* waits for block .*: its hasdep is 0"):
        from_msccl_xml(silent)


def test_a_channel_past_the_declared_ones_is_refused():
    with pytest.raises(InputError, match=r"MSCCL XML:3: chan 1, but nchannels is 1: expected 0 to 0"):
        from_msccl_xml(RING.replace('chan="0"', 'chan="1"'))


def big_ring(ranks: int, channels: int) -> str:
    """Return a ring all-reduce with a block for each channel, as compilers write it."""
    lines = [f'<algo name="ring" proto="Simple" nchannels="{channels}" ngpus="{ranks}" coll="allreduce" inplace="1">']
    for r in range(ranks):
        lines.append(f'<gpu id="{r}" i_chunks="{ranks * channels}" o_chunks="0" s_chunks="0">')
        for k in range(channels):
            kinds = ["s", *["rrs"] * (ranks - 2), "rrcs", *["rcs"] * (ranks - 2), "r"]
            chunks = [r, *(r - s for s in range(1, ranks - 1)), *(r + 1 - s for s in range(ranks - 1)), r + 2]
            steps = [
                STEP.format(s=s, kind=t, at=k * ranks + c % ranks)
                for s, (t, c) in enumerate(zip(kinds, chunks, strict=True))
            ]
            lines += [f'<tb id="{k}" send="{(r + 1) % ranks}" recv="{(r - 1) % ranks}" chan="{k}">', *steps, "</tb>"]
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def test_a_program_of_twelve_thousand_steps_is_proved():
    text = big_ring(16, 24)

    assert text.count("<step") == 11904
    assert verify(from_msccl_xml(text)).ranks == 16


REQUIRED = ["proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace", "minBytes", "maxBytes"]
STEP_KEYS = ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep")


@pytest.mark.parametrize(("collective", "name"), [(c, n) for c in COLL for n in algorithm_names(c)])
def test_an_export_has_what_readers_require_and_no_long_value(collective, name):
    text = to_msccl_xml(build_schedule(collective, name, 24))
    head, steps = text.splitlines()[0], [line for line in text.splitlines() if "<step" in line]

    assert all(f' {key}="' in head for key in REQUIRED)
    assert all(f' {key}="' in line for line in steps for key in STEP_KEYS)
    assert max(map(len, re.findall(r'"([^"]*)"', text))) <= 255
    assert 'coll="reduce_scatter"' not in head


def long_way(rounds: int) -> str:
    """Return the text of a schedule that sends a chunk to and fro a number of times."""
    lines = [f"{i}: c0:{i % 2}>{1 - i % 2}" for i in range(rounds)]
    return "\n".join(["broadcast to_and_fro ranks=2 chunks=1", *lines, ""])


@pytest.mark.parametrize(("name", "ranks"), [("ring", 40), ("partitioned", 34)])
def test_an_export_for_a_runtime_is_cut_to_what_it_takes(name, ranks):
    schedule = build_schedule("all_reduce", name, ranks)
    text = to_msccl_xml(schedule, "rccl")

    assert refusal(text) == ""
    assert from_msccl_xml(text) == schedule


def test_what_a_runtime_cannot_take_is_an_error_that_names_the_limit():
    with pytest.raises(InputError, match="to_and_fro: rccl does not take it: gpu 0 has .* elements, it reads 4096"):
        to_msccl_xml(Schedule.parse(long_way(4200)), "rccl")
    with pytest.raises(InputError, match="copy: msccl has no such collective"):
        to_msccl_xml(build_schedule("copy", algorithm_names("copy")[0], 1), "msccl")


@pytest.mark.parametrize("path", [*FILES, JUDGED / "copy_element_in_place.xml"], ids=lambda path: path.stem)
def test_a_file_that_is_written_again_is_the_same_program(path):
    algo = read_algo(path.read_text())
    again = read_algo(write_algo(algo))
    bare = [(gpu.sizes, [(b.send, b.receive, b.channel, len(b.steps)) for b in gpu.blocks]) for gpu in algo.gpus]

    assert (again.protocol, again.sizes, again.collective) == (algo.protocol, algo.sizes, algo.collective)
    assert [(g.sizes, [(b.send, b.receive, b.channel, len(b.steps)) for b in g.blocks]) for g in again.gpus] == bare
    assert from_msccl_xml(write_algo(algo)).rounds == load_msccl_xml(path).rounds


@pytest.mark.parametrize("path", [*FILES, JUDGED / "copy_element_in_place.xml"], ids=lambda path: path.stem)
def test_a_round_trip_of_a_file_is_proved_and_equal(path):
    trip = round_trip(path)

    assert (trip.proved, trip.difference, trip.fault) == (True, "", "")
    assert trip.refusals == {"msccl": "", "rccl": ""}


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('proto="Simple"', 'proto="LL"', "proto"),
        ('maxBytes="0"', 'maxBytes="4096"', "maxBytes"),
        ('outofplace="0"', 'outofplace="1"', "outofplace"),
        ('type="rrc"', 'type="r"', "type"),
        ('deps="0"', 'deps="1"', "depid, deps"),
        ('hasdep="1"', 'hasdep="0"', "hasdep"),
        ('srcoff="1"', 'srcoff="0"', "src"),
        ('name="ring"', 'name="another"', "name"),
    ],
)
def test_programs_that_differ_in_what_a_runtime_uses_are_not_equal(before, after, place):
    assert before in RING
    changed = RING.replace(before, after, 1)

    assert program_difference(read_algo(RING), read_algo(RING)) == ""
    assert place in program_difference(read_algo(RING), read_algo(changed))


def test_a_name_and_a_flag_that_says_no_are_kept():
    head = '<algo name="a &amp; &lt;b&gt; &quot;c&quot;" inplace="0" outofplace="0" ngpus="1" coll="allreduce">'
    algo = read_algo(f'{head}<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0"/></algo>')

    assert program_difference(algo, read_algo(write_algo(algo))) == ""
    assert 'outofplace="0"' in write_algo(algo)


def one_block(*steps: str) -> str:
    """Return a program of one gpu: steps of block 0, beside a block whose first step copies and tells."""
    other = (
        '<tb id="1" send="-1" recv="-1" chan="0"><step s="0" type="cpy" srcbuf="i" srcoff="1" dstbuf="s" dstoff="4"'
        ' cnt="1" depid="-1" deps="-1" hasdep="1"/></tb>'
    )
    body = "".join(step.replace("<step", f'<step s="{i}"') for i, step in enumerate(steps))
    return (
        '<algo name="x" proto="Simple" nchannels="1" nchunksperloop="8" ngpus="1" coll="allreduce" inplace="1">'
        f'<gpu id="0" i_chunks="8" o_chunks="0" s_chunks="8"><tb id="0" send="-1" recv="-1" chan="0">{body}</tb>{other}'
        "</gpu></algo>"
    )


def local(kind: str, at: int = 0, count: int = 1, wait: str = 'depid="-1" deps="-1"', told: int = 0) -> str:
    """Return a step between scratch and input."""
    return f'<step type="{kind}" srcbuf="s" srcoff="{at}" dstbuf="i" dstoff="0" cnt="{count}" {wait} hasdep="{told}"/>'


WAITS = 'depid="1" deps="0"'


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ([local("nop", wait=WAITS), local("cpy")], "step 1 of block 0 of gpu 0 waits for nothing, .* the wait is lost"),
        ([local("re"), local("nop", wait=WAITS), local("re", 1)], "step 2 .* the wait is lost"),
        ([local("re", count=2), local("re", 2)], "joined with the reduction before it, of 2 chunks and not 1"),
        ([local("cpy", wait='depid="200" deps="0"')], "waits for block 200, it keeps blocks up to 127"),
        ([local("cpy", at=40000)], "its offsets go up to 32767"),
    ],
)
def test_what_the_readers_misread_is_refused_for_them(steps, fault):
    assert re.search(fault, refusal(one_block(*steps)))


@pytest.mark.parametrize(
    "steps",
    [
        [local("nop", wait=WAITS), local("cpy", wait=WAITS)],
        [local("re", count=2, told=1), local("re", 2)],
        [local("re", count=2), local("re", 2, wait=WAITS)],
        [local("re"), local("re", 1), local("cpy", 2)],
    ],
)
def test_what_the_readers_take_as_it_is_meant_is_not_refused(steps):
    assert refusal(one_block(*steps)) == ""


def test_reductions_of_different_sizes_are_kept_apart_for_a_runtime():
    schedule = Schedule.parse("all_reduce x ranks=1 chunks=2 scratch=3\n0: c2-3->c0-1:0>+0\n1: c4->c0:0>+0\n")
    reductions = [local("re", count=2), local("nop"), local("re", 2)]
    algo = read_algo(one_block(*reductions, local("cpy", 3)))

    assert refusal(to_msccl_xml(schedule))
    text = to_msccl_xml(schedule, "rccl")
    assert refusal(text) == ""
    assert from_msccl_xml(text).rounds == schedule.rounds
    told = [step.has_dependents for step in kept_apart(algo).gpus[0].blocks[0].steps]
    assert told == [True, False, False, False]
    assert LIMITS["rccl"].fault_of(kept_apart(algo)) == ""


def test_the_sixteenth_reduction_of_a_block_is_joined_with_none_after_it():
    first = [*(local("re", at) for at in range(8)), local("cpy"), *(local("re", at) for at in range(8))]

    assert refusal(one_block(*first, local("re", count=2))) == ""
    assert "is joined" in refusal(one_block(*first, local("re"), local("re", count=2)))


def test_a_nop_tells_nobody_whatever_its_flag_says():
    waits = '<step type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="2" deps="0" hasdep="0"/>'
    text = one_block(waits).replace(
        "</gpu>", f'<tb id="2" send="-1" recv="-1" chan="0">{local("nop", told=1)}</tb></gpu>'
    )

    with pytest.raises(ScheduleError, match="deadlock: .* tells nobody: a nop cannot"):
        from_msccl_xml(text.replace('<step type="nop"', '<step s="0" type="nop"'))


def test_chunks_of_a_loop_that_no_buffer_has_are_refused():
    with pytest.raises(InputError, match="nchunksperloop is 4, but the largest buffer has 2 chunks"):
        from_msccl_xml(RING.replace('nchunksperloop="2"', 'nchunksperloop="4"'))
