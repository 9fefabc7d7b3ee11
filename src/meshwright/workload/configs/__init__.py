"""config.json files of Hugging Face: a table of model types, and what each key of theirs means.

families    the table, and the traits of decoders of attention and networks
decoders    how those are read
hybrids     layers of several kinds: linear, mamba, recurrent, windows, gated, indexed, routed, cross_attention,
            conformers, wav2vec, token_pooling, perceiver, decoders_of_2026;
            pattern: which layer is which
others      keys of their own; mpt: keys of MPT's own code; bert, bert_kin and encoders: encoders of text; embedders:
            those of code beside their weights; own_decoders: decoders with a part that no other has; pairs of an
            encoder and a decoder, older_pairs; speech_to_text: pairs whose encoder reads sound
classes     types that are read by the class a file names: contrastive (texts beside images), masked (what is hidden of
            images and videos), series of numbers, records (passages and tables); images: encoders of patches; towers:
            what all of them are made of
outputs     classes with another output than that of their type: vectors, classes of a sequence or of tokens
refused     hints in the place of files that are not read
published   files under other keys than those of the library's class for the same model
named       classes that files name, and the types that they are of; directions: which tokens attention meets
own_forms   files without a model type: of mamba_ssm, and the params.json of Meta and Mistral
remote      decoders whose code lies beside their weights; layerwise: those whose layers differ in width
composites  text models with encoders: vision, vision_of_2026, vision_joined, sound
reader      the keys of one file; ignored: keys that change no size; defaults.json: what classes assume;
            names.json: which of the names of the same size a class takes
"""

from .named import model_types
from .read import Described, architecture_of

__all__ = ["Described", "architecture_of", "model_types"]
