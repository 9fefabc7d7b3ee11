"""Pictures of the report page for the documentation: `python -m tests.browser.screenshots RUN [FOLDER]`.

RUN is the folder of a run; the pictures go to docs/images. `make screenshots` trains a short run for them.
"""

import sys
from pathlib import Path

from meshwright.errors import InputError
from meshwright.report.run import report
from meshwright.train.run_folder import RunFolder
from tests.browser.chromium import Browser, missing

VIEWS = {
    "report-beside": "section:nth-of-type(1)",
    "report-timeline": "section:nth-of-type(2)",
    "report-curves": "section:nth-of-type(3)",
}


def main(run: Path, folder: Path) -> None:
    """Write the pictures, light; one of the first screen in the dark, and one as a phone shows it."""
    if missing():
        raise InputError(missing())
    page = RunFolder(run)
    report(page)
    folder.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        browser.view(width=1000)
        browser.open(page.report)
        for name, selector in VIEWS.items():
            browser.picture(selector, folder / f"{name}.png")
        browser.view(width=1000, dark=True)
        browser.open(page.report)
        browser.picture("section:nth-of-type(2)", folder / "report-timeline-dark.png")
        browser.view(width=390)
        browser.open(page.report)
        browser.picture("header", folder / "report-phone.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "docs/images"))
