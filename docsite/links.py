"""Links inside the written pages: `python -m docsite.links` names the ones that lead to no file or no heading.

Addresses of other sites are not asked; the check needs no network.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE = {"benchmarks.md", "algorithms.md", "parallel-step.svg"}  # of docs/, when the site is built
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`|^ {4,}.*$", re.MULTILINE)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the Markdown files that people read."""
    return [
        *sorted(root.glob("*.md")),
        *sorted((root / "docs").rglob("*.md")),
        *sorted((root / ".github").rglob("*.md")),
    ]


def broken_links(root: Path, files: Iterable[Path]) -> list[str]:
    """Return a line for each link that leads nowhere."""
    found = []
    for file in files:
        for target in _LINK.findall(_CODE.sub("", _FENCE.sub("", file.read_text()))):
            fault = "" if ":" in target else _fault(file, target)
            if fault:
                found.append(f"{file.relative_to(root)}: {target}: {fault}")
    return found


def _fault(file: Path, target: str) -> str:
    path, _, heading = target.partition("#")
    other = (file.parent / path).resolve() if path else file
    if other.name in MADE and other.parent.name == "docs":
        return ""
    if not other.exists():
        return "no such file"
    if heading and other.suffix == ".md" and heading not in headings(other.read_text()):
        return "no such heading"
    return ""


def headings(text: str) -> set[str]:
    """Return the anchors of a page, as GitHub and MkDocs make them of its headings."""
    lines = (line.lstrip("#").strip() for line in _FENCE.sub("", text).splitlines() if re.match(r"#{1,6} ", line))
    return {re.sub(r"[^\w\- ]", "", line.lower().replace("`", "")).strip().replace(" ", "-") for line in lines}


if __name__ == "__main__":
    faults = broken_links(ROOT, pages())
    sys.stderr.write("".join(f"{fault}\n" for fault in faults))
    sys.exit(bool(faults))
