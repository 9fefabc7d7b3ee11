"""Layout and Plan: how a training step is split over ranks, its text form, and the chosen split with its prediction."""

import itertools
from typing import Any, Literal

import msgspec

from .errors import InputError
from .files import convert
from .layout_names import OF_PAPERS, is_key, key_hint, own_values, pairs_of
from .quantities import MOST_RANKS, Bytes, Count, Number, Sequences, Tokens
from .timeline import Performance
from .units import counted

PipelineSchedule = Literal["gpipe", "1f1b", "interleaved", "zb"]
Recompute = Literal["none", "selective", "full"]
Offload = Literal["none", "optimizer", "parameters"]
OFFLOADS: tuple[Offload, ...] = ("none", "optimizer", "parameters")
Fits = Literal["fits", "may not", "does not fit"]
FITS: tuple[Fits, ...] = ("fits", "may not", "does not fit")
AXES = ("tp", "cp", "dp", "pp")
COUNTED = ("tp", "pp", "dp", "cp", "ep", "vpp", "mbs", "replicas")  # 1 or more of each
ORDERS = tuple("-".join(order) for order in itertools.permutations(AXES))


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The degrees and switches of a split; the world size is tp x cp x dp x pp.

    `mbs` is the micro-batch in sequences, `sp` the sequence-parallel switch of tensor parallelism, `ep` the expert
    degree, `etp` the tensor parallelism inside an expert, `vpp` the virtual stages of a pipeline rank, and `order`
    names the mesh axes from the innermost (neighbouring ranks) out. `replicas` is the number of copies of a model
    sharded by ZeRO 2 or 3 (HSDP: sharded inside a node, replicated across); it divides dp x cp and is less. `offload`
    is what lives in the host's memory: the optimiser's states, with the update on its processors, or the parameters
    besides, which come to the device layer by layer as ZeRO 2 or 3 gathers them.

    ep divides dp x cp x tp / etp. Left out, etp is tp, or 1 where ep is so large that it takes the ranks of tp as well
    (experts folded over tensor parallelism).
    """

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    cp: Count = 1
    ep: Count = 1
    vpp: Count = 1
    mbs: Count = 1
    zero: Literal[0, 1, 2, 3] = 0
    sp: Literal[0, 1] = 0
    schedule: PipelineSchedule = "1f1b"
    recompute: Recompute = "none"
    order: str = "tp-cp-dp-pp"
    mode: Literal["sync", "async"] = "sync"
    replicas: Count = 1
    etp: Count | None = None
    offload: Offload = "none"

    def __post_init__(self) -> None:
        for name in COUNTED:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if self.world_size > MOST_RANKS:
            raise ValueError(f"tp x cp x dp x pp: expected at most {MOST_RANKS:,} ranks, got {self.world_size:,}")
        if self.order not in ORDERS:
            raise ValueError(f"order: expected the axes {', '.join(AXES)} once each, as tp-cp-dp-pp; got {self.order}")
        self._check_experts()
        if (self.dp * self.cp) % self.replicas:
            raise ValueError(f"replicas: {self.replicas} does not divide dp x cp = {self.dp * self.cp}")
        if self.replicas > 1 and self.zero < 2:
            raise ValueError(f"replicas: copies of a sharded model need zero=2 or 3, not {self.zero}")
        if self.replicas > 1 and self.replicas == self.dp * self.cp:
            raise ValueError(
                f"replicas: {counted(self.replicas, 'copy', 'copies')} on dp x cp = "
                f"{counted(self.replicas, 'rank')} leave nothing to shard; "
                "take fewer, or zero=0"
            )
        if self.offload == "parameters" and self.zero < 2:
            raise ValueError(
                "offload: parameters come from the host layer by layer, as zero=2 or 3 gather them, "
                f"not zero={self.zero}; offload=optimizer goes with any"
            )
        if self.sp and self.tp == 1:
            raise ValueError("sp: sequence parallelism needs tp of 2 or more")
        if self.vpp > 1 and self.pp == 1:
            raise ValueError("vpp: virtual stages need pp of 2 or more")
        if self.vpp > 1 and self.schedule not in {"interleaved", "zb"}:
            raise ValueError(f"vpp: virtual stages need schedule=interleaved or zb, not {self.schedule}")

    def _check_experts(self) -> None:
        if self.etp is not None and (self.etp < 1 or self.tp % self.etp):
            raise ValueError(f"etp: expected a divisor of tp = {self.tp}, got {self.etp}")
        ranks = self.dp * self.cp * self.tp // self.expert_tp
        if ranks % self.ep:
            what = "dp x cp" if self.tp == self.expert_tp else "dp x cp x tp / etp"
            raise ValueError(f"ep: {self.ep} does not divide {what} = {ranks}")

    @property
    def expert_tp(self) -> int:
        """Tensor parallelism inside an expert."""
        if self.etp is not None:
            return self.etp
        data = self.dp * self.cp
        return 1 if data % self.ep and (data * self.tp) % self.ep == 0 else self.tp

    @property
    def is_folded(self) -> bool:
        """Whether expert parallelism takes ranks of tensor parallelism."""
        return self.expert_tp != self.tp

    @property
    def offloaded(self) -> int:
        """The offload to the host's memory, as its place in `OFFLOADS`."""
        return OFFLOADS.index(self.offload)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def is_plain(self) -> bool:
        """Whether this is plain synchronous data parallelism, where every rank holds the whole model."""
        return self == Layout(dp=self.dp, mbs=self.mbs, recompute=self.recompute, order=self.order)

    def __str__(self) -> str:
        """Return the text form: every key that is not at its default, and always dp and mbs."""
        return ",".join(f"{name}={value}" for name, value in self.given().items())

    def given(self) -> dict[str, Any]:
        """Return every key that is not at its default, and always dp and mbs."""
        default = Layout()
        return {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name in {"dp", "mbs"} or getattr(self, name) != getattr(default, name)
        }

    @classmethod
    def parse(cls, text: str, *, world_size: int | None = None, where: str = "--layout") -> "Layout":
        """Return the layout that `text` names, such as "tp=2,dp=4,mbs=1,zero=1", or "TP2 DP4".

        Names of other engines are read as what they are (`layout_names.py`): dp_replicate=2,dp_shard=8. With
        `world_size`, a missing dp is what is left over, and another product is an InputError. Virtual stages without a
        schedule are those of the interleaved one.
        """
        given: dict[str, str] = {}
        known = cls.__struct_fields__
        for said, value in pairs_of(text):
            name = OF_PAPERS.get(said, said.lower() if said.lower() in known else said)
            if not value or not (name in known or is_key(name)):
                part = f"{name}={value}" if value else name
                raise InputError(f"{where}: {part!r}: expected KEY=VALUE with a known key ({key_hint(name, known)})")
            if name in given:
                raise InputError(f"{where}: {name} is given twice")
            given[name] = value
        values: dict[str, Any] = {
            name: int(value) if value.strip().isdecimal() and len(value) < 20 else value.strip()
            for name, value in own_values(given, where).items()
        }
        for name, value in values.items():
            if name in (*COUNTED, "etp") and not isinstance(value, int):
                raise InputError(f"{where}: {text!r}: {name}: expected a whole number, got {value!r}")
        if world_size is not None and "dp" not in values:
            degrees = [values.get(name, 1) for name in ("tp", "cp", "pp")]
            if min(degrees) < 1:
                raise InputError(f"{where}: {text!r}: tp, cp and pp must be whole numbers of 1 or more")
            split = degrees[0] * degrees[1] * degrees[2]
            if world_size % split:
                raise InputError(f"{where}: tp x cp x pp = {split} does not divide the {world_size} ranks")
            values["dp"] = world_size // split
        if isinstance(values.get("vpp"), int) and values["vpp"] > 1:  # 1f1b has none
            values.setdefault("schedule", "interleaved")
        layout = convert(values, cls, where=f"{where}: {text!r}")
        if world_size is not None and layout.world_size != world_size:
            raise InputError(
                f"{where}: {text!r}: tp x cp x dp x pp = {layout.world_size}, but there "
                f"{'is' if world_size == 1 else 'are'} {counted(world_size, 'rank')}"
            )
        return layout


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A layout with its price, and whether it fits in memory where that was asked."""

    layout: Layout
    predicted: Performance
    fits: Fits | None = None


class Machines(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machines that a plan was made for."""

    name: str  # of the cluster
    accelerator: str = ""  # of the catalogue; "" for CPUs
    ranks: Count
    nodes: Count = 1


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The chosen layout, what it is predicted to cost, and the runners-up.

    `model` are the sizes of what is trained, under the names of `workload.architecture` or, of a plan that `train`
    made, of its configuration.
    """

    layout: Layout
    predicted: Performance
    global_batch_sequences: Sequences
    seq_len: Tokens
    bucket_bytes: Bytes  # gradients travel in buckets of this size
    cut: tuple[Number, ...] = ()  # of a pipeline: stage s is units cut[s] to cut[s + 1]; () leaves it to the engine
    alternatives: tuple[Candidate, ...] = ()
    nodes: tuple[str, ...] = ()  # in the order of their ranks, near ones beside each other; () where none were named
    reason: str = ""
    model: dict[str, Any] = {}
    cluster: Machines | None = None
    precision: str = ""  # as `plan --precision` names it; "" where the job says it
    schema: Literal["meshwright.plan/1", "meshwright.plan/2"] = "meshwright.plan/2"

    @property
    def micro_batches(self) -> int:
        """Micro-batches that each data-parallel rank runs in one step."""
        return micro_batches(self.layout, self.global_batch_sequences)


def micro_batches(layout: Layout, global_batch_sequences: int) -> int:
    """Return the micro-batches a rank runs in one step, or raise InputError if the batch does not divide."""
    per_round = layout.dp * layout.mbs
    count, rest = divmod(global_batch_sequences, per_round)
    if rest or not count:
        raise InputError(
            f"global batch {counted(global_batch_sequences, 'sequence')} is not a multiple of dp x mbs = "
            f"{layout.dp} x {layout.mbs} = {per_round}"
        )
    return count
