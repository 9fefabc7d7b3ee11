"""Execution plans of MSCCL++: `file` (the format), `order` (of operations, and races), `importer`, `exporter`."""
