"""What one training step computes, layer by layer: FLOPs, bytes, activations."""
