"""One file for each kind of page: a run, two runs, a plan, traces, a benchmark.

`run`, `two_runs`, `plan`, `trace` and `bench`; each turns what was recorded into sections, and nothing else.
"""
