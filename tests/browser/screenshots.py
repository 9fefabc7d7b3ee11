"""Pictures of all pages: `python -m tests.browser.screenshots RUN CLUSTER_RUN [FOLDER [ALL]]`.

RUN is the folder of a run on one host, CLUSTER_RUN that of one with a pipeline on several; the pictures of the
documentation go to FOLDER (docs/images). Every page and drawing, whole, at the width of a desk and of a phone, light
and dark, goes to ALL (build/screenshots/all), to be looked at. `make screenshots` trains two short runs for them.
"""

import sys
from pathlib import Path

from meshwright.errors import InputError
from meshwright.report.pages.run import report
from meshwright.train.run.run_folder import RunFolder
from testkit.chromium import Browser, missing
from tests.browser.pictures import VIEWS_OF_ALL, drawings, machines, pages

VIEWS = {  # by the heading of their section
    "report-beside": "Predicted beside measured",
    "report-timeline": "Timeline",
    "report-curves": "Loss and throughput",
}
TIMELINE = "document.querySelectorAll('.plot')[1]"
CLUSTER_VIEWS = {
    "report-ranks": "Ranks",
    "report-cluster": "Cluster and links",
    "report-layout": "Layout",
}


def main(run: Path, cluster_run: Path, folder: Path, everything: Path) -> None:
    """Write the pictures, light; a timeline in the dark with the mouse over a bar; the first screen of a phone."""
    if missing():
        raise InputError(missing())
    page, cluster_page = written(run), written(cluster_run)
    folder.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for path, views in ((page, VIEWS), (cluster_page, CLUSTER_VIEWS)):
            browser.view(width=1000)
            browser.open(path)
            for name, heading in views.items():
                browser.picture(section(browser, heading), folder / f"{name}.png")
        browser.view(width=1000, dark=True)
        browser.open(cluster_page)
        browser.hover(TIMELINE, "recv_activation")
        browser.screen(folder / "report-timeline-dark.png")
        browser.view(width=390)
        browser.open(page)
        browser.screen(folder / "report-phone.png")
        look_at_all(browser, {"run": page, "cluster-run": cluster_page}, everything)
        write_of_plans(browser, everything / "made", folder)


def look_at_all(browser: Browser, real: dict[str, Path], folder: Path) -> None:
    """Write a picture of each page in every view, and of each drawing."""
    made = folder / "made"
    made.mkdir(parents=True, exist_ok=True)
    for name, path in {**real, **{path.stem: path for path in pages(made)}}.items():
        for view, (width, dark) in VIEWS_OF_ALL.items():
            browser.view(width=width, dark=dark)
            browser.open(path)
            browser.whole(folder / f"{name}-{view}.png")
    browser.view(width=1280)
    for path in drawings(made):
        browser.open(path)
        browser.whole(folder / f"{path.stem}.png")


def write_of_plans(browser: Browser, made: Path, folder: Path) -> None:
    """Write what the documentation shows of a plan's page, and the drawing of a node; `made` holds the plan's page."""
    browser.view(width=1000)
    browser.open(made / "plan.html")
    browser.picture(section(browser, "Layout"), folder / "plan-layout.png")
    (folder / "topology.svg").write_text(machines()["dgx-h100"])


def written(run: Path) -> Path:
    """Write the page of a run anew and return its path."""
    folder = RunFolder(run)
    report(folder)
    return folder.report


def section(browser: Browser, heading: str) -> str:
    """Return the selector of the section of this heading."""
    number = browser.run(
        "return [...document.querySelectorAll('section')].findIndex("
        "(part) => part.querySelector('h2').textContent === arguments[0])",
        heading,
    )
    if number < 0:
        raise InputError(f"the page has no section {heading!r}")
    return f"#section{number + 1}"


if __name__ == "__main__":
    asked = [Path(word) for word in sys.argv[1:]]
    main(*asked, *(Path("docs/images"), Path("build/screenshots/all"))[len(asked) - 2 :])
