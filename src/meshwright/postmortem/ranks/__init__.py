"""Ranks of what failed: a host, process, GPU or error without a rank gets the one that other lines tell.

- `hosts`: the ranks of a host or pod; `links`: which end of a link is broken; `jobs_of_pods`: events of other jobs
- `devices`: of a GPU, an NPU or a port, for all that speaks of one
- `owners` and `process_owners`: of a process or task; `nameless`: of an error in a file that bears no rank
- `exits`: of exit codes and signals; `unmade`: of an error that follows from what another rank did not make
"""
