"""The model: the `decoder` with its `optimizer`, and the `engine_settings` with which an engine of parallel/ trains it.

- `decoder_sizes`: the decoder that an architecture is, without torch
- `graph`: one planned step, drawn
"""
