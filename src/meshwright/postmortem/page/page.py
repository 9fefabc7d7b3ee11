"""The verdict as a page: the ranks on a line of time with the blamed one marked, the lines, what to try."""

from pathlib import Path

from ...files import write_atomic, writing
from ...report.document import Block, Drawing, Lines, Page, Section, table
from ...report.page import page_html
from ...units import shortened
from ..nouns.verdict import Verdict
from .timeline import drawing, has_order


def write(path: Path, verdict: Verdict) -> None:
    """Write one self-contained HTML file; InputError if that cannot be done."""
    with writing(path):
        write_atomic(path, page_html(page_of(verdict)).encode())


def page_of(verdict: Verdict) -> Page:
    """Return the page of a verdict."""
    sections = [Section("What is known", (_facts(verdict),))]
    if svg := drawing(verdict):
        mark = "a mark is a line of a file, and its text shows under the pointer."
        if has_order(verdict.evidence):
            title, note = "Who wrote what, and when", f"In the order of time; {mark}"
        else:
            title, note = "Who wrote what", f"No clock joins the files: rows have no common order of time; {mark}"
        sections.append(Section("Ranks", (Drawing(title=title, svg=svg, note=note),)))
    if verdict.evidence:
        rows = [(line.place, line.text) for line in verdict.evidence]
        sections.append(Section("Lines that show it", (table(("where", "line"), rows, prose=True),)))
    blocks: list[Block] = []
    if verdict.missing:
        blocks.append(Lines(tuple(verdict.missing), "What cannot be told without"))
    if verdict.next:
        blocks.append(Lines(tuple(verdict.next), "What to try next"))
    sections.append(Section("What now", tuple(blocks)))
    return Page(title="Why the job hung", verdict=verdict.headline(), sections=tuple(sections), kind="post-mortem")


def _facts(verdict: Verdict) -> Block:
    rows = [("kind", f"{verdict.kind}: {verdict.meaning}"), ("because", verdict.because)]
    if verdict.blamed:
        rows.append(("to blame", shortened(verdict.blamed)))
    else:
        rows.append(("to blame", "cannot be told" if verdict.unknown else "nobody"))
    if verdict.collective or verdict.seq is not None:
        number = f" #{verdict.seq}" if verdict.seq is not None else ""
        rows.append(("call", f"{verdict.collective or 'not known'}{number}"))
    if verdict.group:
        rows.append(("group", verdict.group))
    if verdict.waiting:
        rows.append(("waiting", shortened(verdict.waiting)))
    rows.append(("rule", verdict.rule))
    return table(("", ""), rows, prose=True)
