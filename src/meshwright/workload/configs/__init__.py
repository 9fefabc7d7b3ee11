"""config.json files of Hugging Face: a table of model types, and what each key of theirs means.

families    the table, and the traits of decoders of attention and networks
decoders    how those are read
hybrids     layers of several kinds: linear, mamba, windows, decoders_of_2026; pattern: which layer is which
others      keys of their own; vision: text models with an encoder
reader      the keys of one file; ignored: keys that change no size; defaults.json: what classes assume
"""

from .read import Described, architecture_of, model_types

__all__ = ["Described", "architecture_of", "model_types"]
