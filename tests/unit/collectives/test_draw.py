"""Pictures of schedules."""

import xml.etree.ElementTree as ET

from meshwright.collectives.algorithms import build
from meshwright.collectives.draw import draw_svg, draw_text
from meshwright.collectives.schedule import Schedule


def test_the_terminal_picture_has_a_line_a_round_and_a_column_a_rank():
    assert (
        draw_text(build("all_reduce", "ring", 3))
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


def test_the_svg_has_an_arrow_for_each_transfer_and_a_dot_for_each_local_step():
    schedule = build("all_reduce", "naive", 4)
    root = ET.fromstring(draw_svg(schedule))
    space = "{http://www.w3.org/2000/svg}"
    transfers = [t for transfers in schedule.rounds for t in transfers]

    assert len(root.findall(f"{space}g")) == sum(not t.is_local for t in transfers)
    assert len(root.findall(f"{space}circle")) == sum(t.is_local for t in transfers)
    assert {title.text for title in root.iter(f"{space}title")} == {str(t) for t in transfers}
