"""The layouts whose training is held against one process, with the model that each of them splits.

The fast ones run with every `make test`, the others are marked slow; `python -m tests.multiproc.parallel.table` runs
all of them and writes docs/generated/parity.md.
"""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """A layout, what its model has besides the small decoder's sizes, and how it is run."""

    layout: str
    model: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    backend: str = "meshwright"

    def __str__(self) -> str:
        changes = [f"{key}={value}" for key, value in self.model.items()]
        return " ".join([self.layout, *changes, *([self.backend] if self.backend != "meshwright" else [])])


EXPERTS = {"num_local_experts": 4}
UNTIED = {"tie_word_embeddings": False}
DROPOUT = {"hidden_dropout": 0.2}

FAST = (
    Case("dp=2,mbs=2"),
    Case("dp=2,mbs=4,zero=1"),
    Case("dp=2,mbs=2,zero=2"),
    Case("dp=2,mbs=4,zero=3"),
    Case("dp=1,tp=2,mbs=8"),
    Case("dp=1,tp=2,mbs=4,sp=1"),
    Case("dp=1,cp=2,mbs=8"),
    Case("dp=2,ep=2,mbs=4", EXPERTS),
    Case("dp=1,mbs=4,recompute=full"),
    Case("dp=1,mbs=4,recompute=selective"),
    Case("dp=2,tp=2,mbs=2,zero=3,sp=1,recompute=selective"),
    Case("dp=1,tp=2,cp=2,mbs=4,zero=1", UNTIED),
    Case("dp=1,pp=2,mbs=2"),
    Case("dp=1,pp=2,mbs=2,vpp=2,schedule=interleaved", UNTIED),
    Case("dp=1,pp=2,mbs=2,schedule=zb,recompute=full"),
    Case("dp=2,pp=2,mbs=1,zero=1,vpp=2,schedule=zb"),
    Case("dp=2,pp=2,mbs=1,zero=3,schedule=zb"),
    Case("dp=2,mbs=2,recompute=full", DROPOUT),
    Case("dp=1,tp=2,mbs=4,sp=1", DROPOUT),
    Case("dp=1,pp=2,mbs=2,recompute=full", DROPOUT),
)

SLOW = (
    Case("dp=4,mbs=2", backend="gloo"),
    Case("dp=4,mbs=1,zero=1", UNTIED),
    Case("dp=4,mbs=1,zero=2"),
    Case("dp=4,mbs=2,zero=3", backend="gloo"),
    Case("dp=4,mbs=1,zero=2,replicas=2"),
    Case("dp=4,mbs=2,zero=3,replicas=2"),
    Case("dp=1,tp=4,mbs=4"),
    Case("dp=1,tp=4,mbs=8,sp=1", backend="gloo"),
    Case("dp=1,cp=4,mbs=4"),
    Case("dp=4,ep=4,mbs=2", EXPERTS),
    Case("dp=4,ep=2,mbs=1", EXPERTS),
    Case("dp=2,mbs=2", EXPERTS),
    Case("dp=2,tp=2,mbs=2,zero=3,recompute=selective", DROPOUT),
    Case("dp=1,tp=2,cp=2,mbs=4,sp=1", DROPOUT),
    Case("dp=1,pp=2,mbs=2,vpp=2,schedule=zb,recompute=full", DROPOUT),
    Case("dp=2,pp=2,mbs=1,zero=1,vpp=2,schedule=interleaved", DROPOUT),
    # hybrids
    Case("dp=2,tp=2,mbs=4"),
    Case("dp=2,tp=2,mbs=2,order=dp-tp-cp-pp"),
    Case("dp=2,tp=2,mbs=2,sp=1,recompute=full"),
    Case("dp=2,tp=2,mbs=1,zero=1"),
    Case("dp=2,tp=2,mbs=2,zero=2,sp=1", UNTIED),
    Case("dp=2,tp=2,mbs=4,zero=3", backend="gloo"),
    Case("dp=4,tp=2,mbs=1,zero=3,replicas=2,sp=1"),
    Case("dp=2,tp=4,mbs=4,zero=1,sp=1"),
    Case("dp=2,cp=2,mbs=2"),
    Case("dp=2,cp=2,mbs=4,zero=1"),
    Case("dp=2,cp=2,mbs=2,zero=3,recompute=full"),
    Case("dp=2,cp=2,mbs=2,zero=2,order=dp-cp-tp-pp"),
    Case("dp=2,cp=4,mbs=4,zero=3,replicas=2"),
    Case("dp=1,tp=2,cp=2,mbs=4,sp=1"),
    Case("dp=1,tp=2,cp=2,mbs=8,order=cp-tp-dp-pp"),
    Case("dp=2,tp=2,cp=2,mbs=2,sp=1", backend="gloo"),
    Case("dp=2,tp=2,cp=2,mbs=2,zero=1,recompute=selective"),
    Case("dp=2,tp=2,cp=2,mbs=2,zero=3,sp=1", UNTIED),
    Case("dp=2,ep=2,mbs=2,zero=1", EXPERTS),
    Case("dp=2,ep=2,mbs=2,zero=3", EXPERTS),
    Case("dp=4,ep=2,mbs=1,zero=1", EXPERTS),
    Case("dp=4,ep=2,mbs=2,zero=2", EXPERTS | UNTIED),
    Case("dp=4,ep=2,mbs=1,zero=3,replicas=2", EXPERTS),
    Case("dp=2,tp=2,ep=2,mbs=4", EXPERTS),
    Case("dp=2,tp=2,ep=2,mbs=2,sp=1,zero=1", EXPERTS),
    Case("dp=2,tp=2,ep=2,mbs=2,sp=1,zero=3,recompute=full", EXPERTS),
    Case("dp=2,cp=2,ep=2,mbs=2", EXPERTS),
    Case("dp=2,cp=2,ep=4,mbs=2,zero=3", EXPERTS),
    Case("dp=2,tp=2,cp=2,ep=2,mbs=2,sp=1,zero=2", EXPERTS),
    # pipelines
    Case("dp=1,pp=2,mbs=1,schedule=gpipe"),
    Case("dp=1,pp=2,mbs=4,schedule=1f1b", UNTIED, "gloo"),
    Case("dp=1,pp=2,mbs=2,vpp=2,schedule=zb", backend="gloo"),
    Case("dp=1,pp=3,mbs=1"),
    Case("dp=1,pp=4,mbs=1,recompute=full"),
    Case("dp=1,pp=4,mbs=1,schedule=zb", UNTIED),
    Case("dp=1,pp=4,mbs=2,schedule=gpipe,recompute=selective", backend="gloo"),
    Case("dp=2,pp=2,mbs=1"),
    Case("dp=2,pp=2,mbs=2,order=pp-tp-cp-dp"),
    Case("dp=2,pp=2,mbs=1,vpp=2,schedule=interleaved"),
    Case("dp=2,pp=2,mbs=1,zero=1,schedule=zb", UNTIED, "gloo"),
    Case("dp=2,pp=2,mbs=1,zero=2,schedule=gpipe"),
    Case("dp=2,pp=2,mbs=1,zero=3,recompute=full"),
    Case("dp=4,pp=2,mbs=1,zero=3,replicas=2"),
    Case("dp=2,pp=2,mbs=1,zero=2,schedule=zb", UNTIED, "gloo"),
    Case("dp=2,pp=4,mbs=1,zero=3,schedule=zb", UNTIED),
    Case("dp=4,pp=2,mbs=1,zero=3,replicas=2,schedule=zb"),
    Case("dp=2,pp=2,mbs=1,zero=2"),
    Case("dp=2,pp=2,mbs=1,zero=2,vpp=2,schedule=interleaved"),
    Case("dp=2,pp=2,mbs=1,zero=3,vpp=2,schedule=interleaved,recompute=full", UNTIED, "gloo"),
    Case("dp=4,pp=2,mbs=1,zero=3,replicas=2,vpp=2,schedule=interleaved", DROPOUT),
    Case("dp=4,pp=2,mbs=1,zero=2,replicas=2,vpp=2,schedule=interleaved"),
    Case("dp=2,ep=2,pp=2,mbs=1,zero=3,vpp=2,schedule=interleaved", EXPERTS),
    Case("dp=1,tp=2,pp=2,mbs=2,sp=1"),
    Case("dp=1,tp=2,pp=2,mbs=2,schedule=zb", backend="gloo"),
    Case("dp=1,cp=2,pp=2,mbs=2,vpp=2,schedule=interleaved"),
    Case("dp=2,ep=2,pp=2,mbs=1", EXPERTS),
    Case("dp=2,tp=2,pp=2,mbs=1,zero=1,sp=1,vpp=2,schedule=interleaved"),
    Case("dp=2,tp=2,pp=2,mbs=1,zero=3,schedule=gpipe"),
    Case("dp=1,tp=2,cp=2,pp=2,mbs=2,schedule=zb"),
    Case("dp=1,tp=2,pp=4,mbs=2,sp=1,recompute=full"),
)

# states in a second store, which stands for the memory of a host; the first two run with every `make test`
OFFLOADED = tuple(
    Case(f"{text},offload=optimizer")
    for text in (
        *("dp=1,mbs=4", "dp=2,mbs=2,zero=1", "dp=2,mbs=2", "dp=2,mbs=2,zero=2", "dp=2,mbs=2,zero=3"),
        *("dp=1,pp=2,mbs=2", "dp=1,tp=2,mbs=4,sp=1"),
    )
)
