"""Facts of a training stack in words, to be read beside a prediction.

Every field of `Conventions` has its words: of what is in a type, of an amount, of each value of a switch. The values
stand in `conventions` alone.
"""

from collections.abc import Mapping

from .conventions import Conventions
from .elements import TYPE_NAMES
from .recomputed import AWAY, MODULES, RESULTS

TYPES = {  # bytes of an element, told by the type that takes them
    "weight_bytes": "weights that are gathered",
    "gradient_bytes": "gradients that travel",
    "scattered_bytes": "gradients of ZeRO 2 and 3 that travel",
    "residual_bytes": "activations between layers",
    "product_bytes": "what products return",
    "host_weight_bytes": "weights that go to the host",
    "host_gradient_bytes": "gradients that go to the host",
    "held_weight_bytes": "weights that are held",
    "held_gradient_bytes": "gradients that are held",
    "low_input_bytes": "what enters products in 8 bits, as it is kept",
    "gate_bytes": "what enters the experts' activation, as it is kept",
}
AMOUNTS = {
    "optimizer_bytes": "optimiser states take {} bytes a parameter",
    "master_bytes": "master copies of weights take {} bytes a parameter",
    "ends_moment_bytes": "of embedding and output {} bytes more",
    "paged_bytes": "{} of these bytes go to the host where the device is full",
    "bucket": "gradients travel in buckets of {} parameters",
    "gather_waits": "up to ZeRO {} updated weights are waited for after the update",
    "host_share": "the host has {} of the states that are offloaded, and of their update",
    "imbalance": "the fullest rank's experts have {} times the rows of the average",
    "logit_bytes": "a logit takes {} bytes at the peak of the loss",
    "parallel_logit_bytes": "where the vocabulary is cut over tp a logit takes {} bytes",
    "loss_chunks": "logits of one part of {} of a sequence exist at a time",
    "loss_rows": "logits of {} rows exist at a time",
    "norm_copies": "a norm keeps {} copies of its rows",
    "cast_bytes": "backward keeps a copy of a layer's weights, of {} bytes each",
    "output_cast_bytes": "backward keeps a copy of the output's weights, of {} bytes each",
    "spare_gradient_bytes": "fused sums leave {} bytes a weight of a layer unused",
    "trained": "a share of {} of the parameters is trained",
    "base_bytes": "frozen weights take {} bytes each",
    "base_share": "a share of {} of the frozen weights lies so",
    "layers_again": "{} layers of a virtual stage are computed again",
    "fragments": "the allocator holds {} of the activations beyond what is in use",
}
SWITCHES = {  # by value
    "master_bytes": {0: "there are no master copies of weights"},
    "spare_gradient_bytes": {0: "sums of gradients leave none unused"},
    "fragments": {0: "activations have their places ahead of the run"},
    "steps_early": {1: "each gradient is used up as soon as it is there"},
    "reshards": {1: "in a pipeline ZeRO 2 and 3 send in every micro-batch"},
    "root_stays": {
        0: "ZeRO 3 shards embedding, last norm and output like layers",
        1: "under ZeRO 3 embedding, last norm and output stay whole until their backward",
        2: "under ZeRO 3 last norm and output stay whole until their backward",
    },
    "whole_halves": {1: "between the halves of a zero-bubble backward weights and gradients are whole"},
    "sends_cut": {0: "sends between stages are whole on every rank of tp", 1: "sends between stages are cut over tp"},
    "keys_ring": {0: "cp gathers keys and values before attention", 1: "cp passes keys and values round a ring"},
    "heads_exchanged": {1: "cp exchanges rows for heads"},
    "routed_cut": {0: "rows to the experts are whole on every rank of tp", 1: "rows to the experts are cut over tp"},
    "routed_once": {1: "a row goes to each host once"},
    "experts_beside": {1: "a token's experts are neighbours"},
    "router_cut": {1: "a router has the rows of its rank alone"},
    "router_messages": {1: "counts of rows travel before the rows"},
    "ends_sent": {1: "what embedding, output and loss send is priced by itself"},
    "experts_copied": {
        0: "under copies all ranks that have an expert share it",
        1: "each copy of a model has experts of its own",
    },
    "sums_whole": {1: "gradients add up whole and are scattered once a step"},
    "stops_early": {1: "recomputation ends before a layer's last sum"},
    "host_beside": {1: "gradients go to the host beside each backward"},
    "lone_experts_stay": {1: "experts that a rank has alone stay on the device"},
    "host_overlaps": {1: "the first weights come back while the host updates others"},
    "cut_by_cost": {0: "stages have as many layers each", 1: "stages are cut where it balances their cost"},
    "gathers_matrix": {1: "ZeRO 3 gathers a matrix at a time"},
    "gradients_late": {
        0: "gradients have their memory before the first backward",
        1: "gradients have no memory before a backward",
        2: "a gradient has no memory before it is made",
    },
    "roots_at_once": {1: "the update makes the roots of all second moments at once"},
    "sums_apart": {1: "ZeRO 1 has a buffer for a rank's share of the gradients"},
    "shares_single": {1: "ZeRO 2 and 3 shard weights in float32"},
    "gate_kept": {0: "the gate's activation is computed again", 1: "the gate's activation is kept"},
    "selective_saves": {
        0: "selective recomputation repeats attention's inside",
        1: "selective recomputation keeps every second product",
        2: "selective recomputation keeps all products",
        3: "selective recomputation keeps every second product but a layer's last",
    },
    "returned_kept": {0: "rows that experts return are not kept", 1: "rows that experts return are kept"},
    "norms_single": {1: "norms keep their input in float32"},
    "one_projection": {0: "queries, keys and values are three products", 1: "queries, keys and values are one"},
    "gathers_kept": {1: "products keep the rows that they gathered"},
    "weighted_kept": {1: "rows of experts are kept once more as they are weighted"},
    "frees_early": {1: "backward frees what it has used"},
    "joined_adapters": {0: "each matrix has an adapter of its own", 1: "joined matrices have one adapter"},
    "gates_overwritten": {1: "backward writes over what a gated network kept"},
    "adapters_cast": {1: "adapters keep a cast copy of what enters them"},
}  # fmt: skip
LISTS = {  # sets of names, as the sum of 2^place
    "modules_again": (MODULES, 0, "computed again"),
    "results_kept": (RESULTS, 1, "kept"),  # after the bit of what enters a layer
    "results_away": (AWAY, 0, "on the host until backward"),
}


def named_facts(c: Conventions, *, types: bool = False) -> dict[str, float]:
    """Return the facts of a stack by name that are others than in most; of its `types` all."""
    most, found = Conventions(), {name: getattr(c, name) for name in c.__struct_fields__}
    return {name: value for name, value in found.items() if value != getattr(most, name) or (types and name in TYPES)}


def clauses_of(named: Mapping[str, float]) -> list[str]:
    """Return some facts as clauses: first what is in which type, then the others as they are listed."""
    by_type: dict[str, list[str]] = {}
    for name, value in named.items():
        if name in TYPES and value:
            by_type.setdefault(TYPE_NAMES.get(int(value), f"{value:g} bytes"), []).append(TYPES[name])
    found = [f"{', '.join(words)}: {kind}" for kind, words in by_type.items()]
    return found + [text for name, value in named.items() if (text := _clause(name, value))]


def _clause(name: str, value: float) -> str:
    """Return what one fact says, but for a type; "" where there is nothing to say."""
    if name in LISTS:
        names, first, what = LISTS[name]
        listed = [text for place, text in enumerate(names.values()) if int(value) >> first >> place & 1]
        return f"{what}: {', '.join(listed)}" if listed else ""
    if value in SWITCHES.get(name, {}):
        return SWITCHES[name][int(value)]
    return (
        AMOUNTS[name].format(f"{value:,g}" if value < 10**6 else f"{value:,.0f}") if name in AMOUNTS and value else ""
    )
