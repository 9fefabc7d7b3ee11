"""Make the page "What is in the box" and the outputs in the tutorials by running commands: `python -m docsite`.

With `--quick`, what lasts a minute or more keeps the output that the page shows already.
"""

import sys
import tempfile
from pathlib import Path

from docsite import tutorials
from docsite.box import box_page, output_of, samples

ROOT = Path(__file__).parents[1]


def main(*, quick: bool) -> None:
    """Write the pages anew."""
    page = ROOT / "docs" / "generated" / "box.md"
    page.write_text(box_page(kept=page.read_text() if quick else ""))
    with tempfile.TemporaryDirectory() as folder:
        samples(Path(folder))
        for path in tutorials.pages():
            text = path.read_text()
            made = tutorials.filled(text, lambda command: output_of(command, Path(folder)), lasting=not quick)
            if made != text:
                path.write_text(made)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
