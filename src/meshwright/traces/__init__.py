"""Traces of training that others recorded: read, measured, and searched for the rank that the others wait for.

The way of a file through here: `formats` (from the bytes of a file, a folder or an archive to what each rank did, a
`RankTrace`) -> `reading` (which format, which file is which rank) -> `usage` (where a step went) and `stragglers` (who
comes last to the collectives, and what it costs) -> `summary`.

Common to all of them: `model` (a traced rank), `intervals`, `names` (what kernels and operators are called), `steps`.
Beside the summary: `uneven_steps` (what medians hide), `cycles` of a profiler, `drawn_step` (the step
that the page draws).
"""
