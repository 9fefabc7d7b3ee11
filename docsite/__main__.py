"""Make the page "What is in the box" by running its commands: `python -m docsite`.

With `--quick`, what lasts a minute or more keeps the output that the page shows already.
"""

import sys
from pathlib import Path

from docsite.box import box_page

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    page = ROOT / "docs" / "box.md"
    page.write_text(box_page(kept=page.read_text() if "--quick" in sys.argv[1:] else ""))
