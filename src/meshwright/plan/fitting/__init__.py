"""How constants are found: of all published runs, and of a user's own.

- `estimate`: least squares with priors and bounds; `fit`: the constants of the cost model
- `calibrate`: a few factors from a user's own steps; `own_runs`: these applied to rows of a table
"""
