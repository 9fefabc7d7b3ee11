"""Host overhead of a step beside its operators: waking up, checkpointed activations, FSDP2's bookkeeping.

- `wake_up`: the extra time of a rank after a wait
- `checkpointing`: torch's checkpointing around a layer
- `fsdp`: hooks, copies and bookkeeping of FSDP2 around a sharded layer
"""
