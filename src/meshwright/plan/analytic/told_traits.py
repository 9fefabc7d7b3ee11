"""Words for what a job does otherwise than the runs of its stack did, by the names of traits."""

from collections.abc import Collection

NO_SYNC = "no-sync"  # gradients add up whole on each rank between the passes of a step (FSDP's no_sync)
TRAITS = {
    "eager": "layers that run operator by operator",
    "vanilla": "no asynchronous tensor parallelism",
    "tp-overlap": "products that hide tensor parallelism",
    "dp-waits": "gradients that travel after the backward pass",
    "gather-waits": "weights that are gathered before the forward pass",
    NO_SYNC: "gradients that add up whole on each rank between the passes of a step",
    "beside": "a gate for benchmarks, which sends each token to experts that lie beside one another",
}


def otherwise(traits: Collection[str]) -> str:
    """Return what a job does otherwise than its stack's runs, in words."""
    told = [words for trait, words in TRAITS.items() if trait in traits]
    return f"; this job has {' and '.join(told)}" if told else ""
