"""Asynchronous data parallelism as a job: processes of servers and workers, and the supervisor that starts them.

- `terms` and `task`: what servers and workers are to do; `predict`: what it will take
- `supervisor` on one machine, `external` under another launcher; they start `processes`, `serve` among them
- `meeting`: how they find each other
"""
