"""Host overhead of a step beside its operators: waking up, checkpointed activations, FSDP2's bookkeeping."""
