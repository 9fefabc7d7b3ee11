"""The job to train: its configuration and where it runs.

- `config`: every key with its meaning and default
- `precision`: of its products on a device
- `environment`: the variables of torchrun and SLURM, and the backend
- `topology_file`: where this machine hangs among the switches
"""
