"""The output of commands in the tutorials."""

import pytest

from docsite.tutorials import filled

PAGE = "Text.\n\n<!-- prints: a command -->\n```text\n12 layouts priced in 0.9 s\nstep 3 s\n```\n"


@pytest.mark.parametrize(
    ("printed", "page"),
    [
        ("12 layouts priced in 1.1 s\nstep 3 s", PAGE),  # only how long it took is another
        ("12 layouts priced in 1.1 s\nstep 4 s", PAGE.replace("0.9", "1.1").replace("step 3", "step 4")),
    ],
)
def test_an_output_is_renewed_unless_it_only_took_another_time(printed, page):
    assert filled(PAGE, lambda _: printed, lasting=False) == page
