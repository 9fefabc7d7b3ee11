"""Verdicts on measured links and collectives.

- `judge` (the tables of a file) with `messages` and `rates`, on `verdict` (one rate); `shapes` (faults that a table
  alone shows), `beside` (tables of a file held against each other) and `explain`
- the yardstick: `yardstick` (what NCCL attains) of `spec` (figures), `cluster_links`, `named_link`, `ethernet`;
  `settings` of NCCL
"""
