"""Changes that an engine makes to layers: `recompute`, `compiled` by torch.compile, `dropout` alike on all ranks."""
