"""All pages and drawings, in the light and the dark, at a desk and on a phone: nothing runs over or is cut off."""

import pytest

from tests.browser.pictures import VIEWS_OF_ALL, drawings, pages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # the pages are made in the time of the first test

# Texts of each drawing that lie over one another or beyond its edge. A hidden text has no size; figures that the page
# lets a reader scroll, and what Plotly keeps for the pointer, do not count.
FAULTS = """
const faults = [];
for (const svg of document.querySelectorAll('svg')) {
  if (svg.closest('.modebar') || svg.parentElement?.closest('svg')) continue;
  const edge = svg.getBoundingClientRect();
  const seen = (text) => text.textContent.trim() && !text.closest('.hoverlayer, defs');
  const texts = [...svg.querySelectorAll('text')].filter(seen);
  const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, b]) => b.width > 1);
  boxes.forEach(([name, a], index) => {
    if (a.left < edge.left - 2 || a.right > edge.right + 2 || a.top < edge.top - 2 || a.bottom > edge.bottom + 2) {
      faults.push(`"${name}" is cut off`);
    }
    for (const [other, b] of boxes.slice(index + 1)) {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 4) faults.push(`"${name}" lies over "${other}"`);
    }
  });
}
return faults;
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    return {path.name: path for path in (*pages(folder), *drawings(folder))}


PAGES = ["report.html", "two.html", "plan.html", "bench.html", "trace.html", "hang.html"]
DRAWINGS = ["topo-dgx-h100.svg", "topo-dgx-a100-80g.svg", "topo-aws-p4d.svg", "topo-two-links-down.svg",
            "schedule-ring.svg", "schedule-tree.svg", "schedule-one_shot.svg", "graph.svg", "bench.svg"]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS_OF_ALL)
@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_its_window_and_no_label_lies_over_another(browser, made, name, view):
    width, dark = VIEWS_OF_ALL[view]
    browser.view(width=width, dark=dark)
    browser.open(made[name])

    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(FAULTS) == []
    assert browser.complaints() == []


@pytest.mark.parametrize("name", DRAWINGS)
def test_no_label_of_a_drawing_lies_over_another_or_is_cut_off(browser, made, name):
    browser.view(width=1280)
    browser.open(made[name])

    assert browser.run(FAULTS) == []
    assert browser.complaints() == []


@pytest.mark.parametrize("name", PAGES)
def test_every_table_fits_a_window_of_1280(browser, made, name):
    browser.view(width=1280)
    browser.open(made[name])

    scrolled = "return [...document.querySelectorAll('.wide')].filter((part) => part.scrollWidth > part.clientWidth)"
    assert browser.run(f"{scrolled}.map((part) => part.textContent.slice(0, 60))") == []


def test_the_ranks_of_a_pipeline_keep_their_last_column_in_a_window_of_1000(browser, made):
    """Pipelines have a column more than the runs that are drawn here: a copy of the last but one."""
    browser.view(width=1000)
    browser.open(made["report.html"])
    widths = browser.run(
        "const table = [...document.querySelectorAll('table')].find((t) => t.textContent.includes('of it exposed'));"
        "for (const row of table.rows) {"
        "  const cell = row.cells[row.cells.length - 2];"
        "  const more = cell.cloneNode(true);"
        "  more.textContent = cell.tagName === 'TH' ? 'waiting for stages' : '91.4 ms';"
        "  row.insertBefore(more, cell);"
        "}"
        "return [table.parentElement.scrollWidth, table.parentElement.clientWidth]"
    )

    assert widths[0] <= widths[1]


def test_the_lines_that_show_a_verdict_stand_in_sight(browser, made):
    browser.view(width=1280)
    browser.open(made["hang.html"])
    cells = browser.run(
        "return [...document.querySelectorAll('td:nth-child(2)')].map((cell) => {"
        "const words = document.createRange(); words.selectNodeContents(cell);"
        "return [words.getBoundingClientRect().left, words.getBoundingClientRect().right]})"
    )

    assert cells
    assert [cell for cell in cells if not 0 <= cell[0] < cell[1] <= 1280] == []


def test_the_mesh_of_a_plan_fills_its_figure_on_a_phone(browser, made):
    browser.view(width=390)
    browser.open(made["plan.html"])
    heights = browser.run(
        "const plot = [...document.querySelectorAll('.plot')].find((plot) => plot.data[0].type === 'heatmap');"
        "return [plot, plot.querySelector('.heatmaplayer image')].map((part) => part.getBoundingClientRect().height)"
    )

    assert heights[0] - heights[1] < 120  # the titles of figure and axis


def test_no_two_meanings_of_a_figure_share_a_colour(browser, made):
    browser.view()
    browser.open(made["plan.html"])
    shared = browser.run(
        "return [...document.querySelectorAll('.plot')].flatMap((plot) => {"
        "const colours = new Map();"
        "for (const trace of plot.data.filter((trace) => trace.type === 'bar'))"
        "  colours.set(trace.marker.color, new Set([...(colours.get(trace.marker.color) ?? []), trace.name]));"
        "return [...colours.values()].filter((names) => names.size > 1).map((names) => [...names])})"
    )

    assert shared == []
