"""Measuring a run: what each rank did when, and which rank or link has become slow.

- `recorder`: spans of one rank; `memory`: peak bytes of its live tensors
- `records`: all ranks' at rank 0; `measured`: made of them, measured.json and the timeline
- `straggler_monitor` shares the figures of a step, `stragglers` judges them
"""
