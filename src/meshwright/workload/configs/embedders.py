"""Encoders of text whose code lies beside their weights: GTE, and XLM-RoBERTa as Jina trains it."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .bert import encoder
from .decoders import Traits, attention_of_config, made
from .reader import ConfigReader


def gte(c: ConfigReader) -> Architecture:
    """Return GTE: rotated queries and keys, a gate, norms behind both halves (Alibaba-NLP/new-impl:modeling.py)."""
    c.fixed({"position_embedding_type": "rope", "layer_norm_type": "layer_norm"})
    c.skip("pack_qkv", "unpad_inputs", "use_memory_efficient_attention", "logn_attention_scale", "logn_attention_clip1")
    hidden, vocab, plain = c.whole("hidden_size"), c.whole("vocab_size"), attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    biases = 3 * hidden + hidden + hidden  # of queries, keys and values, of what follows them, and behind the gate
    layer = LayerKind(mixer=mixer, network=Dense(width=c.whole("intermediate_size")), small=4 * hidden + biases)
    beside = c.whole("type_vocab_size", 0) * hidden + 2 * hidden + vocab + 3 * hidden - 2 * hidden
    traits = Traits(layer_norm=True, tied=True)
    return made(c, traits, [layer] * c.layers(), beside_parameters=beside, beside_weights=hidden * hidden)


FLASH = "jinaai/xlm-roberta-flash-implementation"


def xlm_roberta(c: ConfigReader) -> Architecture:
    """Return XLM-RoBERTa; rotated and with adapters, as in the code of FLASH, where its file says so."""
    if c.alone("position_embedding_type") != "rotary":
        return encoder(c, behind_padding=True)
    c.skip("emb_pooler", "matryoshka_dimensions", "truncate_dim", "use_reentrant")
    found = encoder(c.changed({"position_embedding_type": "absolute"}), behind_padding=True)
    table = c.whole("max_position_embeddings") * found.embedding_width
    held = found.beside_parameters - table + _adapters(c, found)
    return msgspec.structs.replace(found, positions="rotary", beside_parameters=held)


ADAPTED = (
    "adapters of rank {rank} for {tasks} tasks are counted, {count:,.1f} M, and trained with all else; the code beside "
    "the weights trains them alone where lora_main_params_trainable is false"
)


def _adapters(c: ConfigReader, model: Architecture) -> int:
    """Return the parameters of adapters on every matrix and table, one for each task (FLASH: modeling_lora.py)."""
    if not str(c.part("auto_map").get("AutoModel")).endswith("LoRA"):
        return 0
    tasks = c.value("lora_adaptations", [])
    if not isinstance(tasks, list):
        raise ValueError(f"lora_adaptations: expected a list of tasks, got {tasks!r}")
    c.skip("lora_alpha", "lora_main_params_trainable", "load_trained_adapters")
    rank, hidden, width = c.whole("lora_rank"), model.hidden_size, c.whole("intermediate_size")
    layer = (hidden + 3 * hidden) + 2 * hidden + 2 * (hidden + width)
    tables = model.vocab_size + c.whole("type_vocab_size") + 2 * hidden
    found = len(tasks) * rank * (c.layers() * layer + tables + 2 * hidden)  # the last of the projection of one vector
    c.assumed.append(ADAPTED.format(rank=rank, tasks=len(tasks), count=found / 1e6))
    return found
