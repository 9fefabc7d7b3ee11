"""Make the page "What is in the box" by running its commands: `python -m docsite`."""

from pathlib import Path

from docsite.box import box_page

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    (ROOT / "docs" / "box.md").write_text(box_page())
