"""Readers of what people's own scripts print, and of what they write below a log: each turns messages into facts.

- who is where: `rank_tables`, `meshes`; `phases` of ranks, `said_waits` and `said_sizes` of tensors
- times: `rank_timers` with `timer_reports`, `data_waits`, `pauses`; `two_runs`: a log before and one after a change
- `debuggers` that wait for a person; `not_finite` losses that end a training; `remarks` of people
"""
