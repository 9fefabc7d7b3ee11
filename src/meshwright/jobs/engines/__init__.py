"""Readers, one for each engine: its files and command into a draft of the job, with its defaults.

- Megatron's family: `megatron` with `megatron_stages`, `megatron_refusals` and `megatron_deepspeed`, `bridge`,
  `nemo` with `nemo_recipes`, `nemo_rl` (of two engines), `neox`, `nanotron`, `picotron`, `wrappers`
- torch's own sharding: `torchtitan` with `torchtitan_stages`, `automodel`, `foundry`, `olmo`, `lingua`, `torchtune`,
  `litgpt`, `lightning`
- Hugging Face and DeepSpeed: `huggingface` with `huggingface_settings`, `trainers`, `llama_factory`, `swift`,
  `own_flags`, `accelerate_environment`, `no_sync` and `stage_by_name`; `openrlhf` and `verl`
- JAX: `maxtext`, `levanter`
"""
