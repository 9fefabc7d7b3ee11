"""Checkpoints: a folder each, safetensors data and a JSON manifest with checksums, renamed into place last."""
