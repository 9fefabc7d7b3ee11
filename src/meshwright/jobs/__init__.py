"""Jobs: the configurations of training engines, read and written.

The way of a file: `read` (whose it is) -> `sources` (its documents, command and overrides) -> a reader -> `draft`
(arithmetic that all engines share) -> `job`.

- readers: `megatron` with `megatron_deepspeed`, `bridge`, `nemo`, `automodel`, `torchtitan`, `huggingface`, `trainers`,
  `maxtext`, `wrappers`; `unsupported` refuses others by name
- shell scripts, never run: `shell_syntax`, `shell`, `shell_state`, `shell_words` with `shell_braces` and `shell_marks`,
  `shell_builtins`, `shell_calls`, `shell_conditions`, `shell_output`, `shell_printf`; `slurm`, `launch`, `arithmetic`
- Python configurations, never imported: `python_static`, `python_imports`, `python_values`
- documents: `documents`, `interpolation`, `keys`, `models`
- out again: `target`, `rules` (what the engine can run), `emit` with `emit_megatron`, `emit_torch`, `emit_maxtext`,
  `emit_model`, `emit_environment`, `emit_why`
"""
