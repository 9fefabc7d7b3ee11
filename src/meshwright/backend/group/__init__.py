"""The process group that torch sees: its calls, their arguments, how they run now or later, how it is made.

- calls: `process_group` (collectives), `send_receive`, `torch_group` (all other methods), `overloads`
- what may be passed: `arguments`, `tensors`, `signature` (equal on all ranks of a correct program), `options`
- now or later: `base`, `work`, `futures`; the short way of usual calls: `fast_path`, `native_calls` with calls.c
- making a group: `create`, `meeting`; `device_types` (CPUs and GPUs)
- kinds of their own: `monitored` (barrier), `sparse`
- beside torch: `torch_compat`, `profiler_ranges`, `dispatch_modes`, `c10d_operators`
"""
