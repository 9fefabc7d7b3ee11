"""Targets of adapters, as trainers write them: which matrices of a layer they leave out.

Names are those of Hugging Face's models, of Megatron (linear_qkv, linear_fc1), of torchtune (output_proj) and of LitGPT
(query, projection).
"""

import re

EVERYWHERE = re.compile(r"\ball\b|all-linear|\*")
ATTENTION = {
    "queries": re.compile(r"\b(?:q|query)(?:_proj)?\b|\bq_[ab]_proj|\bwq\b|qkv|query_key_value|c_attn"),
    "keys": re.compile(r"\b(?:k|key)(?:_proj)?\b|\bkv_[ab]_proj|\bwk\b|qkv|query_key_value|c_attn"),
    "values": re.compile(r"\b(?:v|value)(?:_proj)?\b|\bkv_[ab]_proj|\bwv\b|qkv|query_key_value|c_attn"),
    "outputs": re.compile(r"\b(?:o|out|output)_proj|\bwo\b|linear_proj|c_proj|\bprojection\b|\bdense\b"),
}
PARTS = {name: re.compile(rf"\b{name}_proj") for name in ("gate", "up", "down")}  # of a gated network
NETWORKS = re.compile(r"gate_proj|up_proj|down_proj|fc[12]|mlp|\bw[123]\b|feed_forward|dense_h_to_4h")


def without_adapters(targets: str) -> str:
    """Return what adapters on some matrices leave out, in words; "" where they are on all, or where nobody knows."""
    if not targets or EVERYWHERE.search(targets) or targets == "mlp":  # beside attention's, which are not said
        return ""
    missing = [kind for kind, pattern in ATTENTION.items() if not pattern.search(targets)]
    named = [name for name, pattern in PARTS.items() if pattern.search(targets)]
    lacks = [name for name in PARTS if name not in named] if named else []
    told = [f"the {', '.join(missing)} of attention"] if missing else []
    if not NETWORKS.search(targets):
        told.append("the networks")
    elif lacks:
        told.append(f"the {' and '.join(lacks)} projections of networks")
    return " and ".join(told)
