"""The algorithms, one family a file; the catalogue in the folder above lists them by name.

- flat: `ring`, `trees`, `halving`, `dissemination`, `direct`, `decentralised`, `primitives`
- of nodes: `hierarchical` (one algorithm inside each node and one between them), `rings` (one for each NIC)
- `uneven`: any all-to-all with a matrix of counts; `rotation`: what rank 0 sends, where all ranks do alike
"""
