"""The published tables of collective times that are kept outside the repository, where they are at hand."""

import os
from pathlib import Path

import pytest

FOLDERS = [os.environ.get("MESHWRIGHT_VALIDATION", ""), str(Path(__file__).parents[3] / "../shared/validation")]


def collective_tables() -> Path:
    """Return the CSV of published tables, or skip the test where it is not at hand."""
    for folder in filter(None, FOLDERS):
        path = Path(folder) / "collective_tables.csv"
        if path.is_file():
            return path
    pytest.skip("the published tables are not at hand (set MESHWRIGHT_VALIDATION)")
