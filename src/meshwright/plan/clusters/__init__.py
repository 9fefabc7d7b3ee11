"""The machines that a plan is made for, and what their links take.

- `machines`: the cluster by name or file, with rates overridden; `nccl`: how long NCCL takes for one collective
"""
