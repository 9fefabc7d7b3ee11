"""The measured engine: the time and memory of a step from operators and collectives that were timed on this machine.

- `needs`: what is measured before a layout can be priced
- `data_parallel`, `spmd`, `pipeline`: the time of a step, by the kind of its engine
"""
