"""The report page in a browser: nothing to complain of, hover and zoom, numbers, sorting, colours, phones, size."""

import json

import pytest

from meshwright.report.document import Lines, Page, Section
from meshwright.report.figures import curve_figure
from meshwright.report.page import write_page
from meshwright.report.pages.run import report
from testkit.runs import fake_run

pytestmark = pytest.mark.slow
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><b>bold</b>"
DRAWN = ("name", "x", "y", "z", "base", "text", "hovertext")  # what a trace shows
TIMELINE = "document.querySelectorAll('.plot')[1]"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = fake_run(tmp_path_factory.mktemp("run") / "shown", ranks=4, steps=400)
    report(folder)
    return folder.report


@pytest.fixture
def shown(browser, page):
    browser.view()
    browser.open(page)
    return browser


def test_the_console_has_nothing_to_say(shown):
    assert shown.complaints() == []


def test_labels_of_the_cluster_stay_inside_their_hosts(shown):
    beyond = shown.run(
        "const hosts = [...document.querySelectorAll('svg .host')].map((box) => box.getBoundingClientRect());"
        "const inside = (t) => hosts.some((h) => t.left >= h.left && t.right <= h.right && t.bottom <= h.bottom);"
        "const texts = [...document.querySelectorAll('svg:has(.host) g text')].filter((text) => text.textContent);"
        "const drawn = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);"
        "return [drawn.length, drawn.filter(([, t]) => t.top > hosts[0].top && !inside(t)).map(([name]) => name)]"
    )

    assert beyond[0] >= 4
    assert beyond[1] == []


def test_the_buttons_of_a_figure_hide_nothing_of_it(shown):
    overlapped = shown.run(
        "const box = (node) => node.getBoundingClientRect();"
        "return [...document.querySelectorAll('.plot')].filter((plot) => {"
        "const bar = box(plot.querySelector('.modebar'));"
        "return [...plot.querySelectorAll('.legend, .bglayer')].some((part) => {"
        "const b = box(part);"
        "return b.width && b.top < bar.bottom && b.right > bar.left && b.left < bar.right})}).length"
    )

    assert overlapped == 0


def test_the_page_asks_for_nothing_but_itself(shown, page):
    asked = shown.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")

    assert [name for name in asked if not name.startswith("data:")] == []


def test_no_button_of_a_figure_sends_its_data_anywhere(shown):
    titles = shown.run("return [...document.querySelectorAll('.modebar-btn')].map((button) => button.dataset.title)")
    servers = shown.run("return [...document.querySelectorAll('.plot')].map((plot) => plot._context.plotlyServerURL)")

    known = {"Download plot as a PNG", "Download plot as a png", "Zoom", "Pan", "Zoom in", "Zoom out", "Autoscale"}
    assert "Zoom" in titles
    assert set(titles) - known == {"Reset axes"}
    assert set(servers) == {""}


def test_hovering_over_a_bar_tells_what_it_is_its_bytes_link_and_rate(shown):
    text = shown.hover(TIMELINE, "all_reduce")

    assert "all_reduce" in text
    assert "MiB" in text
    assert "GB/s of payload" in text
    assert "network node0-node1, 1 Gb/s" in text


def test_dragging_over_the_timeline_zooms_in(shown):
    shown.run(f"{TIMELINE}.scrollIntoView({{block: 'center'}})")
    before = shown.run(f"return {TIMELINE}._fullLayout.xaxis.range")
    box = shown.run(
        f"const b = {TIMELINE}.querySelector('.nsewdrag').getBoundingClientRect();"
        "return {x: b.x, y: b.y, width: b.width, height: b.height}"
    )
    y = box["y"] + box["height"] / 2
    shown.mouse("mouseMoved", box["x"] + 0.25 * box["width"], y)
    shown.mouse("mousePressed", box["x"] + 0.25 * box["width"], y, 1)
    for share in (0.3, 0.4, 0.5):
        shown.mouse("mouseMoved", box["x"] + share * box["width"], y, 1)
    shown.mouse("mouseReleased", box["x"] + 0.5 * box["width"], y)
    shown.wait(f"{TIMELINE}._fullLayout.xaxis.range[0] > {before[0]} + 1")
    after = shown.run(f"return {TIMELINE}._fullLayout.xaxis.range")

    assert after[1] - after[0] < 0.5 * (before[1] - before[0])


def test_every_number_on_the_page_is_the_one_in_the_json(shown, page):
    data = json.loads(page.with_suffix(".json").read_text())
    blocks = [block for section in data["sections"] for block in section["blocks"]]
    cells = shown.run(
        "return [...document.querySelectorAll('td')].map((cell) => [cell.dataset.value ?? null, cell.textContent])"
    )
    figures = shown.run(
        "return [...document.querySelectorAll('.plot')].map((plot) => "
        "plot.data.map((trace) => arguments[0].map((key) => trace[key] ?? null)))",
        DRAWN,
    )

    tables = [cell for block in blocks if block["type"] == "table" for row in block["rows"] for cell in row]
    drawn = [block for block in blocks if block["type"] == "figure"]
    expected = [[None if cell.get("value") is None else str(cell["value"]), cell["text"]] for cell in tables]
    assert cells == expected
    assert figures == [[[trace.get(key) for key in DRAWN] for trace in block["traces"]] for block in drawn]
    assert len(cells) > 100
    assert len(figures) >= 5


def test_every_sentence_on_the_page_is_the_one_in_the_json(shown, page):
    data = json.loads(page.with_suffix(".json").read_text())
    blocks = [block for section in data["sections"] for block in section["blocks"]]
    texts = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
    read = "return new DOMParser().parseFromString(arguments[0], 'image/svg+xml').documentElement.textContent"

    assert shown.run(texts, ".verdict") == [data["verdict"]]
    assert shown.run(texts, "h2") == [section["heading"] for section in data["sections"]]
    assert shown.run(texts, ".note") == [block["note"] for block in blocks if block.get("note")]
    assert shown.run(texts, "li") == [item for block in blocks if block["type"] == "lines" for item in block["items"]]
    drawings = [block["svg"] for block in blocks if block["type"] == "drawing"]
    assert shown.run(texts, ".drawing svg") == [shown.run(read, svg) for svg in drawings]
    assert "Gb/s" in shown.run(texts, ".drawing svg")[0]


def test_a_click_on_a_heading_sorts_and_another_turns_the_order(shown):
    table = "[...document.querySelectorAll('table.sortable')].at(-1)"
    column = f"[...{table}.tBodies[0].rows].map((row) => Number(row.children[1].dataset.value))"
    button = f"{table}.querySelectorAll('th')[1].querySelector('button')"

    shown.run(f"{button}.click()")
    up = shown.run(f"return {column}")
    shown.run(f"{button}.click()")
    down = shown.run(f"return {column}")

    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert len(set(up)) > 2


@pytest.mark.parametrize(
    ("largest", "ticks"), [(0.0003, ["0", "0.0001", "0.0002", "0.0003"]), (30_000, ["0", "10,000", "20,000", "30,000"])]
)
@pytest.mark.parametrize("width", [390, 1280])
def test_numbers_at_an_axis_are_written_in_full_beside_its_title(browser, tmp_path, width, largest, ticks):
    values = [largest * step / 9 for step in range(10)]
    figure = curve_figure("Learning rate", {"": (list(range(10)), values)}, "learning rate")
    page = Page(title="curve", verdict="", sections=(Section("Curve", (figure,)),), kind="run")
    write_page(tmp_path / "page.html", page)
    browser.view(width=width)
    browser.open(tmp_path / "page.html")
    edge, labels = browser.run(
        "const box = (node) => node.getBoundingClientRect();"
        "const labels = [...document.querySelectorAll('.ytick text')];"
        "const edge = box(document.querySelector('.ytitle')).right;"
        "return [edge, labels.map((node) => [node.textContent, box(node).left])]"
    )

    assert [text for text, _ in labels if text in ticks] == ticks
    assert min(left for _, left in labels) - edge >= 4


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_in_dark(browser, page, dark):
    browser.view(dark=dark)
    browser.open(page)
    colours = browser.run(
        "const s = getComputedStyle(document.body);"
        "const tick = getComputedStyle(document.querySelector('.xtick text'));"
        "return [s.backgroundColor, s.color, tick.fill]"
    )
    back, text, tick = (sum(map(int, c[c.index("(") + 1 : -1].split(",")[:3])) / 765 for c in colours)

    assert (back < 0.2) == dark
    assert abs(back - text) > 0.6
    assert abs(back - tick) > 0.6


def test_a_phone_needs_no_sideways_scrolling_of_the_page(browser, page):
    browser.view(width=360)
    browser.open(page)

    assert browser.run("return document.documentElement.scrollWidth") <= 360
    assert browser.complaints() == []


def test_a_phone_shows_a_long_layout_in_a_heading_to_its_end(browser, tmp_path):
    layout = "tp=4,pp=4,dp=2,cp=2,vpp=2,mbs=1,zero=3,sp=1,schedule=interleaved,recompute=selective"
    page = Page(title=layout, verdict="", sections=(Section("Layout", (Lines(("text",), title=layout),)),), kind="plan")
    write_page(tmp_path / "page.html", page)
    browser.view(width=360)
    browser.open(tmp_path / "page.html")

    assert browser.run("return document.documentElement.scrollWidth") <= 360


def test_hostile_names_stay_text(browser, tmp_path):
    folder = fake_run(tmp_path / "run", hostile=HOSTILE)
    report(folder)
    browser.view()
    browser.open(folder.report)  # an alert would make the next command fail

    assert browser.run("return document.querySelectorAll('img, td b, li b, .verdict b, h1 b').length") == 0
    assert browser.run("return [...document.querySelectorAll('li')].some((li) => li.textContent.includes('<b>bold'))")
    legend = browser.run(f"return [...{TIMELINE}.querySelectorAll('.legendtext')].map((t) => t.textContent)")
    assert any("<b>bold</b>" in text for text in legend)
    assert browser.complaints() == []


def test_a_run_of_100000_steps_on_64_ranks_opens(browser, tmp_path):
    folder = fake_run(tmp_path / "long", steps=100_000, ranks=64)
    report(folder)
    browser.view()
    browser.open(folder.report)

    assert browser.run(f"return new Set({TIMELINE}.data.flatMap((t) => t.y)).size") == 64 * 3 + 3
    assert browser.complaints() == []
