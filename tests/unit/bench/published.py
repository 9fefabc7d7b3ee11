"""The published tables of collective times that the fits are judged by."""

from pathlib import Path


def collective_tables() -> Path:
    """Return the CSV of published tables."""
    return Path(__file__).parents[2] / "external" / "published" / "collective_tables.csv"
