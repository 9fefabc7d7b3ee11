"""Make the generated pages, `python -m docsite`: what is in the box (its commands are run), and benchmark tables."""

from pathlib import Path

from docsite.benchmarks import benchmarks_page
from docsite.box import box_page

ROOT = Path(__file__).parents[1]
PAGES = {"box.md": box_page, "benchmarks.md": benchmarks_page}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (ROOT / "docs" / name).write_text(make())
