"""Saved dumps of other tools, read into a Cluster."""

from .detect import load_dump

__all__ = ["load_dump"]
