"""The run: its folder and what is written there.

- `run_folder`: which file is where; `secret`: random bytes that its machines share
- `run_lock`: one job in a folder; `machine_lock`: one launcher on a machine
- `events`: failures, restarts, stragglers; `event_hook`: the user's command that is told
- `log`: metrics, TensorBoard and progress
"""
