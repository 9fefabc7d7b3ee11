"""Drawings of a cluster: `draw` (text), `svg` with `arrangement`, `svg_places` (nodes under switches), `svg_parts`."""
