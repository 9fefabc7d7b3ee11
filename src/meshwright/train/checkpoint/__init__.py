"""Checkpoints: a folder each, safetensors data and a JSON manifest with checksums, renamed into place last.

- `folder`, `manifest`, `pieces`: what lies on the disk; `stored`: its bytes and checksums, without torch
- `saver` writes beside the training, `state` goes between it and an engine, `resume` checks the job that goes on
- `huggingface`: to and from its format; `llama` (its names and configuration) and `weights` (headers) look first
"""
