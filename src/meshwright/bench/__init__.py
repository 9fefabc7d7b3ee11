"""Measurement of links, collectives and compute, and the fits that planning uses.

- on one rank: `operators`, `compiled_layer`, `host_overhead` with `chains`, `machine`, `collectives`, `pairs`, `sweep`
  with `sweep_on_rank`; made comparable by `cache_pollution`, `cpu_clock`
- `ranks` that measure
- whole measurements: `run` (`bench`), `calibrate` (`train` and `plan --cluster this`), `pace` (still as fast?)
- results: `table`, `fit`, `save_fits`, `plot`
- files of other tools: `reading`; `judgement` of what was measured, against a yardstick
"""
