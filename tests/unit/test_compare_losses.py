"""The comparison of losses names the first step that differs; a link that leads nowhere is named too."""

from docsite.links import broken_links
from tests.compare_losses import differences, main


def test_the_first_step_that_differs_is_named():
    before, after = {"dp=2": [3.0, 2.5, 2.0], "tp=2": [1.0]}, {"dp=2": [3.0, 2.25, 1.0], "tp=2": [1.0]}

    assert differences(before, after) == {"dp=2": "step 1: 2.5 before, 2.25 now", "tp=2": ""}


def test_a_run_that_ended_early_is_no_equal_one():
    assert differences({"dp=2": [3.0, 2.5]}, {"dp=2": [3.0]}) == {"dp=2": "2 steps before, 1 now"}


def test_a_commit_that_is_not_there_is_named(capfd):
    assert main("0" * 40, "dp=1,mbs=4") == 2
    assert capfd.readouterr().err.endswith(f"{'0' * 40}: has no package with a testkit that trains these layouts\n")


def test_links_to_files_and_headings_that_are_not_there_are_named(tmp_path):
    (tmp_path / "a.md").write_text(
        "# A\n\n## Two words, here\n\n[b](b.md#two-words) [gone](gone.md) [self](#nowhere)\n"
    )
    (tmp_path / "b.md").write_text(
        "# B\n\n## Two words\n\n[a](a.md#two-words-here) ![x](x.png) [site](https://x.org)\n"
    )

    assert broken_links(tmp_path, [tmp_path / "a.md", tmp_path / "b.md"]) == [
        "a.md: gone.md: no such file",
        "a.md: #nowhere: no such heading",
        "b.md: x.png: no such file",
    ]


def test_code_is_no_link(tmp_path):
    (tmp_path / "a.md").write_text("# A\n\n```text\n[x](gone.md)\n```\n\n`[y](gone.md)`\n\n    [z](gone.md)\n")

    assert broken_links(tmp_path, [tmp_path / "a.md"]) == []
