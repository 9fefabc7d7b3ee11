"""The machines that a plan is made for, and what their links take.

- `machines`: the cluster by name or file, with rates overridden; `suspicions`: what looks wrong in such a file
- `nccl`: how long NCCL takes for one collective
"""
