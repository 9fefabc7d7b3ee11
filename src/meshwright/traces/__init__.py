"""Traces of training that others recorded: read, measured, and searched for the rank that the others wait for.

The way of a file through here: `opening` (bytes of a file, packed or not, of a folder, an archive) -> `events` (the
events of a Chrome trace, streamed) -> `kineto`, `ascend`, `nsys` or `chakra` (what each rank did: `RankTrace`) ->
`reading` (which file is which rank) -> `usage` (where a step went), `meetings` and `culprit` (who comes last to the
collectives, and what it costs).

Formats: `kineto` (also of a `device` or `cpu_rank`, without one; several ranks in a file: `merged`, `launchers`),
`ascend`, `labelled` (XLA, rocprof), `nsys`, `rocprof`, `chakra` with `protobuf`, `from_timeline`; common to them:
`parts`, `collector`, `launched_kernels`, `names`, `ranges`, `intervals`.

Results: `model` (a traced rank), `steps`, `common_ends` (groups that no trace names), `chained` and `absorbed` (waits
that count and waits that do not), `own_lateness`, `lost_by`, `late_together`, `neighbours` and `pace` (who sets the
pace of a pipeline or a ring), `straggler_reason`, `collective_costs` (waiting and moving data), `slow_links`,
`uneven_steps` (what medians hide), `summary`; `drawn_step` for the page, `chakra_write`.
"""
