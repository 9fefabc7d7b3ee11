"""Measurement of links, collectives and compute, and the fits that planning uses.

- on one rank: `operators`, `compiled_layer`, `host_overhead` with `chains`, `machine`, `collectives`, `pairs`, `sweep`
  with `sweep_on_rank`; made comparable by `cache_pollution`, `cpu_clock`
- the ranks: `setup`, `pool`, `process`, `forkserver_preload`, `job_signals`, `progress`
- whole measurements: `run` (`bench`), `calibrate` (`train` and `plan --cluster this`), `pace` (still as fast?)
- results: `table`, `fit`, `save_fits`, `plot`
- files of other tools: `reading`; judged by `judge`, `verdict`, `shapes`, `explain` against a yardstick: `yardstick`,
  `spec`, `cluster_links`, `named_link`, `settings`
"""
