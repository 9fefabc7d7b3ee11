"""The worker: loop, data, checkpoints, recording, launch.

The way of a job: `config` -> `prepare` (discover, calibrate, choose) -> `launch`, `agent` -> `worker` -> `loop`.

- a plan in, or another: `planned`, `replan`, `resume`; `graph` draws one
- the work: `decoder` with `decoder_sizes`, `optimizer`, `engine_settings`, `precision`, `corpus` with `token_file`, `feed`
- recorded: `recorder`, `records`, `log`, `memory`, `clock`, `measured`; written to the `run_folder`
- the job's ranks: `__main__`, `environment`, `meeting`, `store` with `store_server`, `secret`, `topology_file`
- what goes wrong: `watch`, `rank_exit`, `surroundings`, `events`, `event_hook`; `straggler_monitor` with `stragglers`;
  `run_lock`, `machine_lock`
- wrong numbers: `finite`, `rank_context`, `guard` with `replicas`, `replay` and `checksums`, `corruption`; `flips` tries them out
- `checkpoint`, `asynchronous`
"""
