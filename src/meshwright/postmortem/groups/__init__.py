"""Facts of logs into groups of calls, as flight records have them: who is in a call, who is not, and who is behind.

- `timeouts`, `unnumbered` ones of torch before 2.0, `notices` of who did not come, `notify` (HCCL),
  `printed_counts`, `mismatched_tensors`
- NCCL's counts: `opcount` by its log, `launches` by its report
- `places`: places in a group as ranks; `leavers`: who ran out of data and ended
- `log_positions`: the position by all of them, and what silence is worth
"""
