"""One reader per format of a trace: each returns what its ranks did.

The way of a Chrome trace: `opening` (bytes, packed or not, of a folder, an archive) -> `events` (streamed) ->
`collector` (the events of a rank) -> `kineto` (of a `device`, or of a `cpu_rank` without one; `merged` and `launchers`:
several ranks in a file), `ascend`, `labelled` (XLA) or `rocprof`. Other forms: `databases` (`sqlite_tables`:
`nsys`, `rocpd`), `chakra` with `protobuf` (written by `chakra_write`), `from_timeline` (a run of our own).

Common to them: `parts` (compute, communication and waits of a device), `launched_kernels` (which call of the host
launched a kernel), `ranges` (what NVTX and its like name).
"""
