"""The catalogue: accelerators, links, NICs, nodes and fabrics as TOML data, with a source for each figure."""
