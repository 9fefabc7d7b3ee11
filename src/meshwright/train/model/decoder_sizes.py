"""The sizes of the decoder of `decoder` that an architecture is. Imports no torch."""

from ...errors import InputError
from ...workload.architecture import Architecture
from ...workload.transformer import ModelConfig


def decoder_config(architecture: Architecture, seq_len: int, where: str = "--graph") -> ModelConfig:
    """Return the sizes of the decoder that an architecture is; InputError where its layers are others."""
    others = [
        text
        for differs, text in (
            (not architecture.gated, "its network has no gate"),
            (architecture.norm != "rms", "its norms are not RMSNorm"),
            (architecture.bias, "its products add a bias"),
            (architecture.positions != "rotary", "its positions are not rotary"),
            (architecture.kv_rank > 0, "its attention is latent"),
            (architecture.shared_size > 0, "it has a network beside its experts that every token visits"),
            (architecture.dense_layers > 0, "some of its layers have experts and some have none"),
            (
                architecture.head_dim * architecture.num_attention_heads != architecture.hidden_size,
                "its heads are not hidden_size wide together",
            ),
        )
        if differs
    ]
    if others:
        name = architecture.name or "the model"
        raise InputError(f"{where}: {name}: expected a decoder like Llama; {others[0]}")
    experts = (
        {
            "num_local_experts": architecture.experts,
            "num_experts_per_tok": architecture.experts_per_token,
        }
        if architecture.experts
        else {}
    )
    return ModelConfig(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.expert_size or architecture.intermediate_size,
        num_hidden_layers=architecture.num_hidden_layers,
        num_attention_heads=architecture.num_attention_heads,
        num_key_value_heads=architecture.num_key_value_heads,
        max_position_embeddings=max(seq_len, architecture.max_position_embeddings),
        tie_word_embeddings=architecture.tied,
        **experts,
    )
