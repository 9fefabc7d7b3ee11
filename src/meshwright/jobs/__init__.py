"""Jobs: the configurations of training engines, read and written.

The way of a file: `gather` (its kind) -> `runs` (its scripts) -> `sources` (its documents, command and overrides) ->
`read` (whose it is, by its `signs`, or `unsupported`) -> a reader of `engines` -> `draft` (arithmetic that all engines
share, under the `options` of the command line) -> `job`.

- `shell`, `python`: scripts and programs, read and never run; `programs` finds the file that a command starts
- `files` in which commands and configurations stand; `documents`, `interpolation`, `keys` of YAML, JSON and TOML
- `launch`: the training command with its launcher, the `counts` of its flags, `own_launchers` that start one
  themselves; `hosts`, `slurm` and the `allocation` of any batch system, what starts it from `outside`; `arithmetic`;
  `ranks` of a job by all of these; `nearby` files, by the paths that others name; `folders` in place of a file
- the model: `models`, `model_choice`; what is held otherwise than by default: `savings`, `optimizers`, `tuning`;
  what is learnt from: `objectives`
- `refusals`: what no engine starts; `unrecognised`: files of no engine that is read;
  `partitions` of GPUs, which are not priced
- `emit`: out again
"""
