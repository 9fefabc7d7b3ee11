"""MkDocs hook: adds generated pages, pages that the navigation does not name, and text for links out of docs."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs loads this file alone

from docsite.algorithms import algorithms_page, pictures
from docsite.benchmarks import benchmarks_page
from docsite.pictures import step_picture

SECTION = "How it works"
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Add every page of docs/ that no entry of the navigation names to the section "How it works"."""
    folder = Path(config["docs_dir"])
    named = set(_pages(config["nav"]))
    section = next(entry[SECTION] for entry in config["nav"] if SECTION in entry)
    for path in sorted(folder.rglob("*.md")):
        page = path.relative_to(folder).as_posix()
        if page not in named:
            section.append({title(path.read_text()): page})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of benchmark results and of algorithms, made from the results and the schedules as they are."""
    from mkdocs.structure.files import File

    made = {
        "benchmarks.md": benchmarks_page(),
        "algorithms.md": algorithms_page(),
        **pictures(),
        "parallel-step.svg": step_picture(),
    }
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links to files of the repository that are no page into text that names them."""
    root = Path(config["docs_dir"])
    here = (root / page.file.src_uri).parent

    def named(match: re.Match[str]) -> str:
        target = (here / match[2].split("#")[0]).resolve()
        return match[0] if target.is_relative_to(root.resolve()) else f"{match[1]} (`{match[2].lstrip('./')}`)"

    return _LINK.sub(named, markdown)


def title(markdown: str) -> str:
    """Return the first heading of a page."""
    return next(line.removeprefix("# ") for line in markdown.splitlines() if line.startswith("# "))


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [page for value in values for page in _pages(value)]
