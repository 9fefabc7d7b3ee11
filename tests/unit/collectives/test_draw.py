"""Pictures of schedules."""

import itertools
import xml.etree.ElementTree as ET

import pytest

from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.schedules.draw import draw_svg, draw_text
from meshwright.collectives.schedules.schedule import Schedule


def test_the_terminal_picture_has_a_line_a_round_and_a_column_a_rank():
    assert (
        draw_text(build_schedule("all_reduce", "ring", 3))
        == """\
all_reduce ring: 3 ranks, 4 rounds, 3 chunks
round  r0     r1     r2
0      +1 c2  +2 c0  +0 c1
1      +1 c1  +2 c2  +0 c0
2      >1 c0  >2 c1  >0 c2
3      >1 c2  >2 c0  >0 c1
"""
    )


def test_signals_and_local_steps_have_signs_of_their_own():
    text = draw_text(Schedule.parse("all_reduce x ranks=2 chunks=1 scratch=1\n0: c0->c1:0>0 sig:1>0\n1: c1->c0:0>+0\n"))

    assert text.splitlines()[2:] == ["0      c1=c0   >0 signal", "1      c0+=c1"]


SPACE = "{http://www.w3.org/2000/svg}"


def test_the_svg_has_an_arrow_for_each_pair_of_a_round_and_a_dot_for_each_local_step():
    schedule = build_schedule("all_reduce", "naive", 4)
    root = ET.fromstring(draw_svg(schedule))
    transfers = [t for transfers in schedule.rounds for t in transfers]
    arrows = [g for g in root.findall(f"{SPACE}g") if g.get("id") != "legend"]

    assert len(arrows) == sum(not t.is_local for t in transfers)
    assert len(root.findall(f"{SPACE}circle")) == sum(t.is_local for t in transfers)
    assert {title.text for title in root.iter(f"{SPACE}title")} == {str(t) for t in transfers}


def test_chunks_of_one_pair_share_an_arrow():
    schedule = Schedule.parse("all_reduce x ranks=2 chunks=3\n0: c0:0>+1 c2:0>+1 c1:1>+0\n")
    root = ET.fromstring(draw_svg(schedule))

    assert [title.text for title in root.iter(f"{SPACE}title")] == ["c0:0>+1, c2:0>+1", "c1:1>+0"]
    assert {"+1 c0,2", "+0 c1"} <= {text.text for text in root.iter(f"{SPACE}text")}


@pytest.mark.parametrize(("name", "ranks"), [("partitioned", 8), ("one_shot", 12), ("naive", 6), ("ring", 64)])
def test_no_label_lies_over_another_and_there_is_a_legend(name, ranks):
    root = ET.fromstring(draw_svg(build_schedule("all_reduce", name, ranks)))
    boxes = [
        (float(text.get("x")), float(text.get("y")), 6.1 * len(text.text))
        for text in root.findall(f"{SPACE}text")
        if text.get("font-size") == "10"
    ]
    by_line: dict[float, list[tuple[float, float]]] = {}
    for x, y, width in boxes:
        by_line.setdefault(y, []).append((x, width))

    assert root.find(f"{SPACE}g[@id='legend']") is not None
    assert boxes
    for found in by_line.values():
        ends = sorted(found)
        assert all(x + width <= after for (x, width), (after, _) in itertools.pairwise(ends))
    lines = sorted(by_line)
    assert all(below - above >= 10 for above, below in itertools.pairwise(lines))
