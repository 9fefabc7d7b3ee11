"""Saved dumps of other tools, read into a Cluster."""

from .detect import load_dump, load_dumps

__all__ = ["load_dump", "load_dumps"]
