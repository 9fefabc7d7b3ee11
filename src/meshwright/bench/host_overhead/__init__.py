"""What a step costs on the host beside its operators: waking up, checkpointed activations, FSDP2's bookkeeping."""
