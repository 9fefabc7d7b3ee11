"""Small decoders of ours, a checkpoint of one, and a Llama's config.json as Hugging Face writes it."""

from pathlib import Path

import msgspec
import torch
from torch import nn

from meshwright.train.checkpoint.manifest import CheckpointFacts, Manifest, write_manifest
from meshwright.train.checkpoint.pieces import Piece, write_file
from meshwright.train.model.decoder import Decoder
from meshwright.workload.transformer import ModelConfig

HUGGING_FACE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 97, "hidden_size": 32,
    "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": True,
}  # fmt: skip
SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}
MODELS = {
    "tied": ModelConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2),
    "untied": ModelConfig(**SIZES, num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=False),
    "wide": ModelConfig(**SIZES, num_attention_heads=2, num_key_value_heads=2, rope_theta=5e5, rms_norm_eps=1e-6),
}


def saved(folder: Path, config: ModelConfig) -> tuple[Decoder, Path]:
    """Return a decoder and its checkpoint."""
    torch.manual_seed(4)
    module = Decoder(config)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    pieces = [Piece(n, tuple(p.shape), (0,) * p.dim(), p.detach()) for n, p in module.named_parameters()]
    folder.mkdir()
    file, table = write_file(folder / "rank-00000.safetensors", pieces)
    facts = CheckpointFacts(step=3, model=msgspec.to_builtins(config))
    write_manifest(folder, Manifest(facts=facts, files={"rank-00000.safetensors": file}, tensors=table))
    return module, folder
