"""MSCCL XML.

- `file`: the format; `write`: as text again
- in: `importer`, with the `order` of steps and the `slots` of buffers
- out: `exporter`, within the `limits` of the runtimes
- `flight`: messages under way at once; `trip`: there and back, with `same` to compare programs
"""
