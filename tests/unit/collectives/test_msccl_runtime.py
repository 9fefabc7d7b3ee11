"""A program in MSCCL's runtimes: bounded connections, flags, foreign elements, what their readers take."""

import re
from collections import deque
from pathlib import Path

import pytest

from meshwright.collectives.algorithms import algorithm_names, build_schedule
from meshwright.collectives.msccl_export import COLL, to_msccl_xml
from meshwright.collectives.msccl_file import read_algo
from meshwright.collectives.msccl_flight import HELD, flight
from meshwright.collectives.msccl_import import from_msccl_xml, load_msccl_xml
from meshwright.collectives.msccl_limits import LIMITS
from meshwright.collectives.msccl_write import write_algo
from meshwright.collectives.schedule import Schedule
from meshwright.collectives.verify import ScheduleError, verify
from meshwright.errors import InputError

HERE = Path(__file__).parent
JUDGED = HERE / "msccl_judged"
FILES = sorted((HERE / "msccl").glob("*.xml"))
RING = to_msccl_xml(build_schedule("all_reduce", "ring", 2))
STEP = (
    '<step s="{s}" type="{kind}" srcbuf="i" srcoff="{at}" dstbuf="i" dstoff="{at}" cnt="1" depid="-1" deps="-1"'
    ' hasdep="0"/>'
)


def swap(messages: int, protocol: str = "Simple") -> str:
    """Return a program in which both of two ranks send so many messages before they receive any."""
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


def test_a_step_that_tells_nobody_leaves_those_who_wait_for_it_waiting():
    silent = re.sub(r'hasdep="1"', 'hasdep="0"', RING)

    with pytest.raises(ScheduleError, match="deadlock: .* waits for block .*: its hasdep is 0"):
        from_msccl_xml(silent)


def test_a_channel_past_those_that_are_declared_is_refused():
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
    """Return the text of a schedule that sends a chunk to and fro so many times."""
    lines = [f"{i}: c0:{i % 2}>{1 - i % 2}" for i in range(rounds)]
    return "\n".join(["broadcast to_and_fro ranks=2 chunks=1", *lines, ""])


@pytest.mark.parametrize(("name", "ranks"), [("ring", 40), ("partitioned", 34)])
def test_an_export_for_a_runtime_is_cut_to_what_it_takes(name, ranks):
    schedule = build_schedule("all_reduce", name, ranks)
    text = to_msccl_xml(schedule, "rccl")

    assert LIMITS["rccl"].fault(text) == ""
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
