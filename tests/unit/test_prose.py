"""Sentences that an engineer reads at full speed: docstrings name a thing first, and some words do not come back."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "src" / "meshwright").rglob("*.py"))
PAGES = ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")
WRITTEN = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / f"{name}.md" for name in PAGES)]
BESIDE = [
    *(
        path
        for folder in ("benchmarks", "docsite", "examples", "testkit", "tests")
        for path in ROOT.glob(f"{folder}/**/*.py")
    ),
    *(path for kind in ("c", "cpp", "h") for path in (ROOT / "src" / "meshwright").rglob(f"*.{kind}")),
]
AT_THE_START = re.compile(r"(What|Who|Whom|Whoever|Whatever|Whether|Which|Those|How many|So many)\b")
# in a test's name too, where an underscore is no end of a word
FORBIDDEN = re.compile(
    r"(?<![a-z])(whoever|whomever|whosoever|wherefore|thereof|those[ _](?:that|who)|so[ _]many|in[ _]vain)(?![a-z])",
    re.IGNORECASE,
)
MOST_TERMS = 40
LONGEST_ITEM = 140  # characters of a line of the changelog


def first_line(tree):
    return (ast.get_docstring(tree) or "").partition("\n")[0]


@cache
def package():
    """Return the first line of each module of the package, and where and what the docstring of each class is."""
    trees = {path: ast.parse(path.read_text()) for path in FILES}
    classes = {
        f"{path.relative_to(ROOT)}:{node.lineno}": ast.get_docstring(node) or ""
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    return {path.relative_to(ROOT): first_line(tree) for path, tree in trees.items()}, classes


def test_the_docstring_of_a_module_names_its_subject_first():
    beside = [path for path in BESIDE if path.suffix == ".py"]
    first = package()[0] | {path.relative_to(ROOT): first_line(ast.parse(path.read_text())) for path in beside}

    assert {path for path in first if not first[path] and path.parts[0] == "src"} == set()
    assert {path: line for path, line in first.items() if AT_THE_START.match(line)} == {}


def test_the_docstring_of_a_class_names_what_an_object_of_it_is():
    assert {place: text for place, text in package()[1].items() if AT_THE_START.match(text)} == {}


def flowing(text):
    """Return a text without the ends of its lines: of strings that go on in the next, of comments, of paragraphs."""
    whole = re.sub(r"([\"'])[ \t]*\n\s*[bfr]*\1", "", text)
    return re.sub(r"\s*\n\s*(?:#|//|\*)?\s*", " ", whole)


def forbidden(text):
    return [match[0] for match in FORBIDDEN.finditer(flowing(text))]


def test_a_text_has_none_of_the_words_that_nobody_says():
    texts = {path: path.read_text() for path in sorted({*FILES, *WRITTEN, *BESIDE} - {Path(__file__)})}

    assert {str(path.relative_to(ROOT)): found for path, text in texts.items() if (found := forbidden(text))} == {}


def test_words_that_the_end_of_a_line_parts_are_found():
    assert forbidden('f"it waits in"\n    f" vain"') == ["in vain"]
    assert forbidden("# of those\n    # that wait") == ["those that"]
    assert forbidden("within\nvain hopes") == []


def glossary():
    """Return the terms of the glossary, several of a row apart."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Glossary")[2]
    return [row.split("|")[1].strip() for row in text.splitlines() if row.startswith("| ") and "| term |" not in row]


def test_the_glossary_is_short_enough_to_be_read_and_in_order():
    assert 20 < len(glossary()) <= MOST_TERMS
    assert glossary() == sorted(glossary(), key=str.lower)


def test_the_changelog_has_a_line_an_item_under_what_was_added_changed_or_fixed():
    text = (ROOT / "CHANGELOG.md").read_text()
    items = [line for line in text.partition("\n## ")[2].splitlines()[1:] if line and not line.startswith("#")]
    headings = {line.split(":")[0].split(",")[0] for line in text.splitlines() if line.startswith("### ")}

    assert [line for line in items if not line.startswith("- ") or len(line) > LONGEST_ITEM] == []
    assert headings == {"### Added", "### Changed", "### Fixed", "### Libraries"}
