"""The line that says what each stage of a pipeline holds, and which of them is the fullest."""

import io

from rich.console import Console

from meshwright.plan.analytic.by_stage import StageMemory
from meshwright.report.stages import show_stages


def shown(*gibibytes: float) -> str:
    stages = [
        StageMemory(stage=n, layers=9, allocated_bytes=size * 2**30, reserved_bytes=0.0, card_bytes=0.0)
        for n, size in enumerate(gibibytes)
    ]
    console = Console(file=io.StringIO(), width=200)
    show_stages(console, stages)
    return console.file.getvalue().strip()


def test_the_fullest_stage_is_named_behind_what_each_holds():
    assert shown(35, 26, 26, 41) == (
        "allocated on each stage: 0: 35 GiB (9 layers), 1-2: 26 GiB (9 layers), 3: 41 GiB (9 layers); the fullest: 3"
    )


def test_equal_stages_have_no_fullest_and_one_stage_is_no_pipeline():
    assert shown(20, 20) == "allocated on each stage: 0-1: 20 GiB (9 layers)"
    assert shown(20) == ""
