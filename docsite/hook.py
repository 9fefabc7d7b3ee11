"""MkDocs hook: pages that the navigation does not name are added to it; links out of docs/ become names of files."""

import re
from pathlib import Path
from typing import Any

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


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links to files of the repository that are no page into text that names them."""
    root, here = Path(config["docs_dir"]), Path(page.file.abs_src_path).parent

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
