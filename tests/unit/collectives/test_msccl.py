"""MSCCL XML: other people's files load and are proved, our own come back unchanged, damaged and hostile ones do not."""

import random
import re
import time
from pathlib import Path

import pytest

from meshwright.collectives.catalogue import algorithm_names, build_schedule, hierarchical_of
from meshwright.collectives.msccl.exporter import to_msccl_xml
from meshwright.collectives.msccl.file import COLL
from meshwright.collectives.msccl.importer import from_msccl_xml, load_msccl_xml
from meshwright.collectives.pricing.figures import figures
from meshwright.collectives.proof.verify import ScheduleError, verify
from meshwright.collectives.schedules.schedule import Schedule
from meshwright.errors import InputError
from tests.unit.collectives import msccl_machine, mutants

FILES = sorted((Path(__file__).parent / "msccl").glob("*.xml"))
OWN = [(collective, name) for collective in COLL for name in algorithm_names(collective)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_program_of_msccl_tools_is_proved(path):
    schedule = load_msccl_xml(path)

    assert verify(schedule).ranks == schedule.ranks
    assert schedule.scratch == 0


def test_the_first_runtime_spells_reduce_scatter_with_an_underscore():
    text = to_msccl_xml(build_schedule("reduce_scatter", "ring", 3))

    assert from_msccl_xml(text.replace("reducescatter", "reduce_scatter")) == from_msccl_xml(text)


def test_another_compiler_s_ring_is_our_ring():
    theirs = load_msccl_xml(next(path for path in FILES if path.stem == "allreduce_ring_4"))
    ours = build_schedule("all_reduce", "ring", 4)
    turned = {tuple(sorted(str(t).replace("c", "") for t in transfers)) for transfers in theirs.rounds}

    assert figures(theirs) == figures(ours)
    assert len(turned) == 6


@pytest.mark.parametrize(("collective", "name"), OWN)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 12])
def test_our_own_schedules_come_back_unchanged(collective, name, ranks):
    schedule = build_schedule(collective, name, ranks, root=ranks - 1)

    assert from_msccl_xml(to_msccl_xml(schedule)) == schedule


@pytest.mark.parametrize(("collective", "name"), OWN)
def test_without_our_notes_on_rounds_they_come_back_as_schedules_that_are_proved(collective, name):
    schedule = build_schedule(collective, name, 6, root=2)
    read = from_msccl_xml(re.sub(r' round="[^"]*"', "", to_msccl_xml(schedule)))

    verify(read)
    assert figures(read).sent_most == figures(schedule).sent_most


def test_damaged_and_random_schedules_keep_their_verdict_through_xml():
    rng, verdicts = random.Random(5), []
    while len(verdicts) < 400:
        schedule = mutants.mutated(rng, mutants.random_schedule(rng))
        if schedule is None or schedule.collective not in COLL or not all(schedule.rounds):
            continue
        try:
            verify(schedule)
            verdicts.append(True)
        except ScheduleError:
            verdicts.append(False)
            continue
        assert from_msccl_xml(to_msccl_xml(schedule)) == schedule

    assert 20 < sum(verdicts) < 380


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_plain_interpreter_agrees_that_the_files_are_right(path):
    assert all(msccl_machine.is_right(path.read_text(), random.Random(seed)) for seed in range(5))


def damaged(rng, text):
    """Return a file with one step altered: another type, place or count, no wait, or left out."""
    lines = text.splitlines()
    steps = [i for i, line in enumerate(lines) if "<step " in line]
    i = rng.choice(steps)
    kind = rng.choice(["type", "offset", "wait", "swap"])
    if kind == "type":
        words = {"rrc": "r", "rrs": "rcs", "rcs": "rrcs", "r": "rrc", "rrcs": "rrs", "cpy": "re"}
        lines[i] = re.sub(r'type="(\w+)"', lambda m: f'type="{words.get(m[1], m[1])}"', lines[i])
    elif kind == "offset":
        end = rng.choice(["src", "dst"])
        lines[i] = re.sub(rf'{end}off="(\d+)"', lambda m: f'{end}off="{max(0, int(m[1]) - 1)}"', lines[i])
    elif kind == "wait":
        lines[i] = re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', lines[i])
    elif i + 1 in steps:
        one, two = (re.sub(r's="\d+"', 's="@"', lines[j], count=1) for j in (i, i + 1))
        numbers = [re.search(r's="(\d+)"', lines[j])[1] for j in (i, i + 1)]
        lines[i], lines[i + 1] = two.replace("@", numbers[0], 1), one.replace("@", numbers[1], 1)
    return "\n".join(lines)


def test_what_is_proved_of_a_damaged_file_holds_in_every_run_of_a_plain_interpreter():
    rng, proved, refused = random.Random(9), 0, 0
    for _ in range(150):
        text = damaged(rng, rng.choice(FILES).read_text())
        try:
            verify(from_msccl_xml(text))
        except (ScheduleError, InputError):
            refused += 1
            continue
        proved += 1
        assert all(msccl_machine.is_right(text, random.Random(seed)) for seed in range(4)), text

    assert proved > 20
    assert refused > 20


def test_a_program_that_fails_in_some_run_of_a_plain_interpreter_is_refused():
    rng, wrong = random.Random(10), 0
    for _ in range(150):
        text = damaged(rng, rng.choice(FILES[:2] + FILES[3:]).read_text())
        if all(msccl_machine.is_right(text, random.Random(seed)) for seed in range(3)):
            continue
        wrong += 1
        with pytest.raises((ScheduleError, InputError)):
            verify(from_msccl_xml(text))

    assert wrong > 40


RING = to_msccl_xml(build_schedule("all_reduce", "ring", 2))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not XML"),
        ("<algo", "not XML"),
        ("<html/>", "expected algo > gpu > tb > step"),
        ('<!DOCTYPE algo [<!ENTITY a "aaaa">]><algo/>', "document types and entities are not accepted"),
        ('<!DOCTYPE algo SYSTEM "file:///etc/passwd"><algo/>', "document types and entities are not accepted"),
        ("<algo>&undefined;</algo>", "not XML: undefined entity"),
        (RING.replace('coll="allreduce"', 'coll="allreduced"'), "did you mean allreduce"),
        (RING.replace('coll="allreduce"', ""), "<algo> without coll: expected one of allreduce.*reducescatter"),
        (RING.replace('ngpus="2"', 'ngpus="3"'), "ngpus is 3, but there are 2 gpus"),
        (RING.replace('type="rrc"', 'type="rrr"', 1), r"MSCCL XML:\d+: step type 'rrr': unknown"),
        (RING.replace('cnt="1"', 'cnt="0"', 1), r"MSCCL XML:4: cnt: expected 1 to"),
        (RING.replace('cnt="1"', 'cnt="9999999999999"', 1), "cnt: expected a number"),
        (RING.replace('srcoff="1"', 'srcoff="7"', 1), "chunks 7 to 7 of buffer i of gpu 0, which has 2"),
        (RING.replace('send="1"', 'send="5"', 1), "peer 5 of gpu 0: no such other gpu"),
        (RING.replace('send="1"', 'send="0"', 1), "peer 0 of gpu 0: no such other gpu"),
        (RING.replace('depid="1" deps="0"', 'depid="7" deps="0"', 1), "waits for block 7 step 0, which is not there"),
        (RING.replace('<gpu id="1"', '<gpu id="4"'), "gpu id: expected 1, got 4"),
        (RING.replace("<gpu", "hello <gpu", 1), "text 'hello'; expected elements only"),
        (RING.replace('round="1.0"', 'round="0.0"'), "is noted for"),
        (RING.replace('s_slots=""', 's_slots="1"', 1), "s_slots: expected 0 slots"),
        ("<algo>" * 50_000, "expected algo > gpu > tb > step"),
    ],
)
def test_hostile_and_broken_files_are_one_line_errors(text, reason):
    with pytest.raises(InputError, match=reason) as caught:
        from_msccl_xml(text)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (RING.replace('type="rrc"', 'type="r"', 1), "without the contribution"),
        (re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', RING), "race on i"),
        (re.sub(r'      <step s="1" type="s".*\n', "", RING, count=1), "1 sends but 2 receives from gpu 0 to gpu 1"),
        (FILES[-1].read_text().replace('type="cpy"', 'type="nop"', 1), "gpu 0 never writes the output for chunk 0"),
    ],
)
def test_programs_that_cannot_work_are_refused_with_the_reason(text, reason):
    with pytest.raises(ScheduleError, match=reason):
        verify(from_msccl_xml(text))


def test_blocks_that_wait_in_a_circle_are_a_deadlock():
    blocks = '<tb id="{0}" send="{1}" recv="-1" chan="0"><step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="{2}" deps="0" hasdep="1"/></tb>'  # noqa: E501
    gpu = '<gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">' + blocks.format(0, -1, 1) + blocks.format(1, -1, 0)
    text = f'<algo name="x" ngpus="1" coll="allreduce" inplace="1">{gpu}</gpu></algo>'

    with pytest.raises(
        ScheduleError, match=r"deadlock: steps wait for each other in a circle, among them line 1 \(gpu 0"
    ):
        from_msccl_xml(text)


def test_signals_have_no_place_in_the_format():
    with pytest.raises(InputError, match="barrier: MSCCL XML has no messages without chunks"):
        to_msccl_xml(build_schedule("barrier", "central", 3))


def test_a_name_with_markup_is_escaped():
    schedule = Schedule.parse("copy a/b:c ranks=1 chunks=2\n0: c0->c1:0>0\n")
    text = to_msccl_xml(schedule).replace('name="a/b:c"', 'name="&lt;a b&gt;"')

    assert from_msccl_xml(text).name == "_a_b_"


def test_a_large_program_is_read_in_reasonable_time():
    text = to_msccl_xml(hierarchical_of("all_reduce", 32, 8))
    start = time.perf_counter()
    from_msccl_xml(text)

    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_a_program_that_does_not_say_its_root_has_the_one_it_is_right_for_or_the_one_that_is_given(collective):
    text = to_msccl_xml(build_schedule(collective, "binomial", 4, root=2)).replace(' root="2"', "")

    assert from_msccl_xml(text).root == 2
    with pytest.raises(ScheduleError):
        verify(from_msccl_xml(text, root=1))
    with pytest.raises(InputError, match="root 4: expected 0 to 3"):
        from_msccl_xml(text, root=4)
