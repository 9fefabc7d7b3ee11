"""The worker: loop, data, checkpoints, recording, launch.

The way of a job: `config` -> `prepare` (discover, calibrate, choose) -> `launch`, `agent` -> `worker` -> `loop`.

- a plan in, or another: `planned`, `replan`, `resume`; `graph` draws one
- the work: `decoder`, `optimizer`, `float8`, `corpus` with `token_file`, `feed`
- recorded: `recorder`, `log`, `memory`, `clock`, `measured`; written to the `run_folder`
- the job's ranks: `__main__`, `environment`, `meeting`, `store` with `store_server`, `secret`, `topology_file`
- what goes wrong: `watch`, `rank_exit`, `surroundings`, `events`, `event_hook`; `straggler_monitor` with `stragglers`;
  `run_lock`, `machine_lock`
- wrong numbers: `finite`, `guard` with `replicas`, `replay` and `checksums`, `corruption`; `flips` tries them out
- `checkpoint`, `asynchronous`
"""
