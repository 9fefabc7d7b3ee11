"""The work of one training step, layer by layer: FLOPs, bytes, activations."""
