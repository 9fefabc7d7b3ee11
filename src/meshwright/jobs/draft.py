"""Draft: what a reader found so far; `finish` does the arithmetic that all engines share and makes the Job.

Ranks, degrees and batch each come with the words that say where they were found, so that a contradiction names both.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ..errors import InputError
from ..files import convert
from ..layout import Offload, Recompute
from ..pipelines import even_stages
from ..quantities import MOST_RANKS
from ..units import counted
from ..workload.adapters import adapted_matrices, adapted_text, adapter_parameters, without_adapters
from ..workload.architecture import Architecture
from ..workload.recomputed import MODULES
from .job import Job, JobSplit, understood
from .keys import Keys
from .model_choice import ModelSaid, OwnModel, chosen_model, model_at
from .models import architecture_named, catalogue_name, changed, other_sizes
from .options import JobOptions
from .refusals import MEGATRONS, RECIPES, UNEVEN, impossible, near_batches
from .savings import Savings, settled
from .shell.marks import shown
from .sources import Sources

MOST_STAGES = 4096  # of a pipeline, and on one rank of it: more than any model has layers
SPLIT = ("tp", "pp", "cp")
UNFUSED = "before-2023"  # the planner's stack without fused attention
ROUTED_ONCE = frozenset({"flex", "deepep", "hybridep"})  # dispatchers that send a row once to each node
ROUTED_APART = frozenset({"alltoall", "alltoall_seq"})
COUNTED = "counted"  # the planner's trait of jobs whose hosts wait for counts of rows
GRAPH_KEY = re.compile(r"cuda[-_ ]?graph", re.IGNORECASE)
# docs/training/cuda-graphs.md of Megatron-Bridge; no formula of the buffers is published
GRAPHED = "a graph's buffers (a few GB, in a pipeline more than 10) and the launches that it saves are not priced"
# settings of a second model, which the one that is trained learns from
TEACHER = re.compile(r"(?:^|[._-])teacher(?:[._-]|$)")
TAUGHT = "a second model runs beside the one that is trained: its weights and its forward pass are not priced"
# recipes of fp8 as engines call them: of one scale for each tensor, and of more
ONE_SCALE = frozenset({"delayed", "tensorwise", "current", "hybrid", "custom"})
SCALED = {"blockwise": "fp8-block", "block": "fp8-block", "rowwise": "fp8-row", "rowwise_with_gw_hp": "fp8-row"}


class Draft:
    """One job while it is read: degrees with their origin, the batch in the engine's units, lists of remarks."""

    def __init__(self, engine: str, files: Sequence[str], question: JobOptions) -> None:
        self.engine, self.files, self.question = engine, tuple(files), question
        self.version: str | None = None
        self.degrees: dict[str, tuple[int, str]] = {}  # tp, pp, cp, dp, ep, etp, vpp, replicas: value and origin
        self.switches: dict[str, Any] = {}  # zero, sp, schedule, recompute, order, offload
        self.world: tuple[int, str] | None = None
        self.gpus_per_node: int | None = None
        self.world_is_a_default = False
        self.batch: dict[str, tuple[int, str]] = {}  # global, local (a pass of one dp rank), mbs, steps
        self.batch_open = False  # whether the global batch is said by something that only the running job knows
        self.seq_len: int | None = None
        self.precision: str | None = None
        self.model_name: str | None = None
        self.config: dict[str, Any] = {}  # sizes of the model under the keys of a config.json
        self.stages: tuple[int, ...] = ()
        self.routed_once: bool | None = None
        self.half_sums: bool | None = None
        self.modules: tuple[str, ...] = ()
        self.results: tuple[str, ...] | None = None  # that a checkpoint by names keeps
        self.stack = ""  # whose kernels it runs, where its engine does not say that
        self.away: tuple[str, ...] = ()  # activations that lie in the hosts' memory
        self.offload_share = 1.0  # of the states that lie in host memory under offload=optimizer
        self.layers_again = 0  # of each virtual stage, that full recomputation repeats; 0: all
        self.lora_rank, self.lora_told, self.lora_targets = 0, "", ""
        self.savings = Savings()
        self.further: tuple[int, str] = (0, "")  # modules that predict further tokens, trained
        self.vocabulary_guessed = False  # by the class of a tokenizer, which tells no model from another
        self.partial = False  # whether sizes that the file leaves out are the published model's
        self.ends = (0, 0)  # layers that embedding and output count as where stages are cut
        self.recompute_text = ""
        self.refusal = ""  # why no engine starts the job, told where all of it is read
        self.assumed: list[str] = []
        self.traits: list[str] = []
        self.ignored: list[str] = []
        self.notes: list[str] = []

    # --- what readers say

    def degree(self, name: str, keys: Keys, *names: str, default: int | None = None) -> int | None:
        """Take a degree from the first of some keys; its default is the engine's and not worth a word."""
        doubt = keys.doubtful(*names)
        value = keys.whole(*names, least=1)
        if value is not None:
            most = MOST_STAGES if name in {"pp", "vpp"} else MOST_RANKS
            if value > most:
                raise InputError(f"{keys.where}: {keys.find(*names) or names[0]} {value}: expected at most {most:,}")
            self.degrees[name] = (value, keys.told(keys.find(*names) or names[0]))
        elif doubt:
            raise InputError(f"{keys.where}: {doubt}: is not set in the files; say --job NAME=VALUE")
        elif default is not None:
            self.degrees[name] = (default, f"{names[0]} {default} (the default of {self.engine})")
        return self.get(name)

    def refused(self, text: str) -> InputError:
        """Return an error that names the file once where there is one alone."""
        if len(self.files) == 1:
            return InputError(f"{self.files[0]}: {text.replace(f' ({self.files[0]})', '')}")
        return InputError(text)

    def put(self, name: str, value: int, origin: str) -> None:
        """Set a degree that was computed."""
        self.degrees[name] = (value, origin)

    def get(self, name: str, default: int = 1) -> int:
        """Return a degree, or the default."""
        return self.degrees.get(name, (default, ""))[0]

    def origin(self, name: str) -> str:
        """Return the words that say where a degree was found."""
        return self.degrees[name][1]

    def take_batch(self, name: str, keys: Keys, *names: str) -> int | None:
        """Take one of the batch's numbers (global, local, mbs, steps) from the first of some keys.

        Raises InputError where only the running job knows it; a global batch of that kind is left open.
        """
        doubt = keys.doubtful(*names)
        value = keys.whole(*names, least=1)
        if value is not None:
            self.batch[name] = (value, keys.told(keys.find(*names) or names[0]))
        elif doubt and name == "global":
            self.batch_open = True
            self.note(f"{doubt} is known only where the job runs")
        elif doubt:
            raise InputError(f"{keys.where}: {doubt}: is not set in the files; say --job NAME=VALUE")
        return value

    def further_tokens(self, keys: Keys, *names: str) -> None:
        """Take how many modules that predict further tokens are trained, from the first of some keys."""
        count = keys.whole(*names)
        if count:
            self.further = count, keys.told(keys.find(*names) or names[0])

    def recompute(self, kind: Recompute, text: str = "") -> None:
        """Set the recomputation, with the engine's own words for it."""
        self.switches["recompute"] = kind
        self.recompute_text = text

    def offload(self, kind: Offload) -> None:
        """Set what lives in host memory."""
        self.switches["offload"] = kind

    def without_fused_attention(self, why: str) -> None:
        """Have the kernels of a stack without fused attention price the job, and list why."""
        self.stack = UNFUSED
        self.assume(f"attention in kernels of its own steps, since {why}: priced as --stack {UNFUSED}")

    def zero(self, stage: Literal[0, 1, 2, 3]) -> None:
        """Set what data-parallel ranks share of the states."""
        self.switches["zero"] = stage

    def assume(self, text: str) -> None:
        """Add to the list of what was assumed."""
        if text not in self.assumed:
            self.assumed.append(text)

    def ignore(self, text: str) -> None:
        """Add to the list of what changes time or memory and is not priced."""
        if text not in self.ignored:
            self.ignored.append(text)

    def dispatch(self, key: str, dispatcher: str | None, backend: str = "", *, padded: bool = False) -> None:
        """Note how rows reach their experts: once for each node, or once for each expert.

        For the latter the host waits in each layer, unless rows are `padded` to a number that is known before.
        """
        if self.get("ep") == 1 or dispatcher is None:
            return
        word = backend or dispatcher
        if word in ROUTED_ONCE or word in ROUTED_APART:
            self.routed_once = word in ROUTED_ONCE
            self.traits += [COUNTED] if word in ROUTED_APART and not padded else []
        else:
            self.routed_once = False
            self.ignore(f"{key} = {word}: priced as alltoall")

    def recompute_modules(self, names: Sequence[str]) -> None:
        """Set the modules that selective recomputation computes again; names that are not known are not priced."""
        self.modules = tuple(name for name in MODULES if name in names)
        for name in [name for name in names if name not in MODULES]:
            self.ignore(f"recompute-modules {name}: not priced")

    def adapters(self, told: str, rank: int | None, targets: str = "") -> None:
        """Have adapters of a rank trained alone, on what `targets` name; what is not priced as it is, is said."""
        if rank is None:
            self.ignore(f"{told}: adapters alone are trained, of no rank that is said; priced as if all weights were")
        self.lora_rank, self.lora_told, self.lora_targets = rank or 0, told, targets

    def recipe(self, key: str, recipe: str | None) -> None:
        """Take the scales of a recipe of fp8; an unknown one is priced with a scale for each tensor, and said."""
        if recipe is None or self.precision != "fp8" or recipe.lower() in ONE_SCALE:
            return
        known = SCALED.get(recipe.lower())
        self.precision = known or self.precision
        if known is None:
            self.ignore(f"{key} {recipe}: priced with one scale for each tensor; kernels for more scales are slower")
        elif recipe.lower().endswith("_gw_hp"):  # torchao's, which multiplies weights' gradients in half precision
            self.ignore(f"{key} {recipe}: priced as if gradients of weights were multiplied in fp8 too")

    def note(self, text: str) -> None:
        """Add a remark."""
        if text not in self.notes:
            self.notes.append(text)

    def nodes_times(self, nodes: tuple[int, str] | None, per_node: tuple[int, str] | None) -> None:
        """Set the ranks from nodes and ranks a node, where both are known."""
        if per_node is not None:
            self.gpus_per_node = per_node[0]
        if nodes is not None and per_node is not None:
            self.world = (nodes[0] * per_node[0], f"{nodes[1]} x {per_node[1]} = {nodes[0] * per_node[0]}")

    def copies_by_node(self, told: str, nodes: int | None = None) -> None:
        """Have states shared inside a node and copied on each, by nodes or ranks of a node: of 8, where none says them.

        So PyTorch's HYBRID_SHARD forms its groups where it is given none (torch/distributed/fsdp/_init_utils.py).
        """
        world = self.question.gpus or (None if self.world is None else self.world[0])
        each = self.gpus_per_node
        if world is not None and each is None and nodes is None:
            each = 8
            self.assume(f"{told}: shards inside nodes of {each}, a copy on each")
        if world is not None and each:
            nodes = -(-world // each)
        if nodes is None:
            self.note(f"{told} needs the number of ranks")
        else:
            self.put("replicas", nodes, f"{told} on {counted(nodes, 'node')}")

    def conclude(self, sources: Sources, keys: Keys, harmless: Sequence[str]) -> Job:
        """Return the job, with what was assumed and noted while its files were read and the keys that nobody read."""
        self.files = tuple(dict.fromkeys([*self.files, *sources.names]))  # those too that others of them name
        self.assumed = [*dict.fromkeys([*sources.assumed, *self.assumed])]
        self.notes = [*dict.fromkeys([*sources.notes, *self.notes])]
        for key, reason in keys.behind.items():
            self.note(f"{reason} behind {key} (further flags) is known only where the job runs")
        if taught := [key for key in keys.values if TEACHER.search(key) and keys.raw(key) not in {None, False}]:
            self.ignore(f"{keys.told(taught[0])}: {TAUGHT}")
        for text in keys.left(harmless):
            self.ignore(f"{text}: {GRAPHED}" if GRAPH_KEY.search(text) else text)
        return self.finish()

    # --- the arithmetic

    def finish(self) -> Job:
        """Return the job; InputError where two keys contradict each other."""
        world = self._settle_world()
        dp = self._settle_dp(world)
        if world is None and dp is not None:
            world = math.prod(self.get(name) for name in SPLIT) * dp
        self._settle_pipeline()
        self._settle_replicas(dp)
        self._settle_offload()
        global_batch, mbs = self._settle_batch(dp)
        architecture = self._settle_further(self._settle_model())
        self._check_layers(architecture)
        matrices = self._settle_adapters(architecture)
        seq_len = self.question.seq_len or self.seq_len
        if self.question.seq_len and self.seq_len and self.question.seq_len != self.seq_len:
            self.assume(f"--seq-len {seq_len} in place of the files' {self.seq_len}")
        known: dict[str, Any] = {name: value for name, (value, _) in self.degrees.items() if name != "dp"}
        asked = {"weights": self.question.weights, "loss": self.question.loss}
        held: dict[str, Any] = settled(self.savings, asked, self, adapters=self.lora_rank > 0)
        job = Job(
            engine=self.engine,
            engine_version=self.version,
            files=self.files,
            world=world,
            gpus_per_node=self.gpus_per_node,
            layout=JobSplit(**known, **self.switches, dp=dp, mbs=mbs),
            architecture=architecture,
            model_name=self.model_name,
            global_batch=global_batch,
            seq_len=seq_len,
            precision=self.question.precision or self.precision,
            routed_once=self.routed_once,
            half_sums=self.half_sums,
            stages=self.stages,
            lora_rank=self.lora_rank,
            lora_targets=matrices,
            **held,
            modules=self.modules,
            results=self.results,
            away=self.away,
            stack=self.stack,
            layers_again=self.layers_again,
            offload_share=self.offload_share,
            recompute_text=self.recompute_text,
            traits=tuple(self.traits),
            assumed=tuple(map(shown, self.assumed)),
            ignored=tuple(map(shown, self.ignored)),
            notes=tuple(map(shown, self.notes)),
        )
        told = {name: origin for name, (_, origin) in self.degrees.items()}
        if why := self.refusal or impossible(job, told, self.batch):
            raise self.refused(f"{why}; read so far: {understood(job)}")
        return convert(msgspec.to_builtins(job), Job, where=job.where)  # figures within the bounds of what they are

    def _settle_world(self) -> int | None:
        asked = self.question.gpus
        if asked is not None and self.world is not None and asked != self.world[0]:
            self.assume(f"--gpus {asked} in place of {self.world[1]}")
        if asked is not None:
            self.world = (asked, f"--gpus {asked}")
        return None if self.world is None else self.world[0]

    def _settle_dp(self, world: int | None) -> int | None:
        split = math.prod(self.get(name) for name in SPLIT)
        used = [name for name in SPLIT if self.get(name) > 1]
        words = " x ".join(self.origin(name) for name in used) or "no model parallelism"
        if world is not None and self.world is not None and world % split:
            raise self.refused(f"{words} = {split} on {self.world[1]}: the degrees do not divide the ranks")
        if "dp" not in self.degrees:
            return None if world is None else world // split
        dp, origin = self.degrees["dp"]
        if world is not None and self.world is not None and dp * split != world:
            product = f"{words} x {origin}" if used else origin
            raise self.refused(f"{product} = {dp * split} on {self.world[1]}: the degrees do not multiply to the ranks")
        return dp

    def _settle_pipeline(self) -> None:
        """Take away what has no effect: schedule and virtual stages of one stage, sequence parallelism of one rank."""
        if self.get("pp") == 1:
            if self.get("vpp") > 1 or self.switches.get("schedule", "1f1b") != "1f1b":
                self.note(f"{' + '.join(self.files)}: a pipeline schedule is set, but pp is 1: it has no effect")
            self.degrees.pop("vpp", None)
            self.switches["schedule"] = "1f1b"
            self.stages = ()
        self.switches.setdefault("schedule", "1f1b")
        if self.get("vpp") > 1 and self.switches["schedule"] == "1f1b":
            self.switches["schedule"] = "interleaved"
        if self.switches.get("sp") and self.get("tp") == 1:
            self.note(f"{' + '.join(self.files)}: sequence parallelism is on, but tp is 1: it has no effect")
            self.switches["sp"] = 0

    def _settle_replicas(self, dp: int | None) -> None:
        """Take copies of a whole model for plain data parallelism: nothing is sharded between them."""
        copies = self.get("replicas")
        if dp is None or copies == 1:
            return
        if dp * self.get("cp") == copies:  # nothing is left to shard
            self.degrees.pop("replicas")
            if self.switches.get("zero", 0) >= 2:
                self.zero(0)
        elif (dp * self.get("cp")) % copies:
            raise self.refused(f"{self.origin('replicas')} does not divide the {dp} data-parallel ranks")

    def _settle_adapters(self, architecture: Architecture | None) -> tuple[str, ...]:
        """Return the matrices with adapters, () for all; all weights are trained where a layer's are not counted."""
        if not self.lora_rank:
            return ()
        matrices = adapted_matrices(architecture, self.lora_targets) or ()
        if not matrices and (left := without_adapters(self.lora_targets)):
            self.ignore(f"{self.lora_told} on {self.lora_targets} alone: priced as if on {left} too")
        try:
            if architecture is not None:
                adapter_parameters(architecture, self.lora_rank, matrices)
            self.assume(f"{self.lora_told}: {adapted_text(matrices)}, of rank {self.lora_rank}")
        except InputError as error:
            self.lora_rank, matrices = 0, ()
            self.ignore(f"{error}; priced as training of all weights")
        return matrices

    def _settle_further(self, architecture: Architecture | None) -> Architecture | None:
        """Return the model with the modules that predict further tokens which the job trains."""
        count, told = self.further
        asked = self.question.mtp_layers
        if asked is not None and asked != count:
            self.assume(f"--mtp-layers {asked} in place of {told or 'none in the files'}")
        count = count if asked is None else asked
        if count and self.lora_rank:
            self.ignore(f"{told or f'--mtp-layers {count}'}: not priced beside adapters")
            count = 0
        if architecture is None or not count:
            return architecture
        return changed(architecture, {"mtp_trained": count}, self.files[0])

    def _settle_offload(self) -> None:
        """Take weights in host memory for weights on the GPU where no stage of ZeRO brings them layer by layer."""
        if self.switches.get("offload") == "parameters" and self.switches.get("zero", 0) < 2:
            self.note("offload of parameters has no effect without ZeRO 2 or 3: they stay on the GPU")
            self.offload("none")

    def _settle_batch(self, dp: int | None) -> tuple[int | None, int | None]:
        """Return the global batch and the micro-batch in sequences."""
        given = self.batch
        mbs = given["mbs"][0] if "mbs" in given else None
        local = given["local"][0] if "local" in given else None
        if local is None and mbs is not None:
            local = mbs * (given["passes"][0] if "passes" in given else 1)
        if local is not None and mbs is not None and local % mbs:
            raise self.refused(f"{given['local'][1]} is not a multiple of {given['mbs'][1]}")
        steps = given["steps"][0] if "steps" in given else None
        total = self.question.global_batch or (given["global"][0] if "global" in given else None)
        if self.question.global_batch and "global" in given and total != given["global"][0]:
            self.assume(f"--global-batch {total} in place of {given['global'][1]}")
        if total is None and local is not None and dp is not None and not self.batch_open:
            total = local * dp * (steps or 1)
            if steps is None and self.engine not in {"torchtitan", "maxtext"}:
                self.assume("one pass a step: no accumulation of gradients is set")
        if local is None and total is not None and dp is not None and steps is not None and total % (dp * steps) == 0:
            local = total // (dp * steps)
        if mbs is None:
            mbs = local if self.get("pp") == 1 or "pieces" not in given else None
        self._check_batch(total, local, steps, dp)
        if mbs is None and total is not None and "pieces" not in given:
            self.assume("passes of one sequence on each rank: the files do not say how many")
        return total, mbs

    def _check_batch(self, total: int | None, local: int | None, steps: int | None, dp: int | None) -> None:
        if total is None or dp is None:
            return
        each, name = local or steps or 1, "local" if local else "steps"  # in sequences: without a pass, one at a time
        words = self.batch.get(name, self.batch.get("mbs", (each, f"a pass of {counted(each, 'sequence')}")))[1]
        whole = self.batch.get("global", (total, f"--global-batch {total}"))[1]
        if total % (each * dp):
            pp, rounds = self.get("pp"), self.engine in MEGATRONS and self.get("vpp") > 1
            group, passes = self.batch.get("group", (pp, ""))[0], self.batch.get("passes", (1, ""))[0]
            near = near_batches(total, each, dp, pp, group if rounds else 1, passes=passes if local else 2)
            raise self.refused(
                f"{whole} is not a multiple of {words} x dp {dp} = {counted(each * dp, 'sequence')} a pass; {near}"
            )
        if local and steps is not None and "global" in self.batch and local * dp * steps != total:
            raise self.refused(
                f"{whole} contradicts {words} x {self.batch['steps'][1]} x dp {dp} = "
                f"{counted(local * dp * steps, 'sequence')}"
            )

    def own_model(self) -> OwnModel | None:
        """Return the model of a config.json: among the files, or where they name it by its path; None without one."""
        return self.question.own or model_at(self.model_name or "", self.question.folder)

    def named_model(self) -> Architecture | None:
        """Return the model that the draft's name or the question means, None where it is not in the catalogue."""
        if self.question.architecture is not None:
            return self.question.architecture
        if (own := self.own_model()) is not None:
            return own.architecture
        name = catalogue_name(self.model_name) if self.model_name else None
        return None if name is None else architecture_named(name)

    def said_layers(self) -> int | None:
        """Return how many layers the model has by the file's sizes, by the question, or by its name."""
        own = self.config.get("num_hidden_layers")
        if isinstance(own, int) and self.question.architecture is None:
            return own
        model = self.named_model()
        return None if model is None else model.num_hidden_layers

    def _settle_model(self) -> Architecture | None:
        """Return the model: asked for, listed by its sizes, of a config.json among the files, or named."""
        if self.question.architecture is not None:
            if (own := self.own_model()) is not None:
                self.assume(f"--model {self.question.model} in place of {own.file}")
            if other := other_sizes(self.question.architecture, self.config):
                self.assume(f"--model {self.question.model} in place of the files' {', '.join(other)}")
            self.model_name = self.question.model
            return self.question.architecture
        unsure = frozenset({"vocab_size"}) if self.vocabulary_guessed else frozenset()
        said = ModelSaid(self.model_name or "", self.config, self.files[0], partial=self.partial, unsure=unsure)
        return chosen_model(said, self.own_model(), self)

    def _check_layers(self, model: Architecture | None) -> None:
        """Raise InputError where the layers do not divide by the stages and no uneven cut is given."""
        pp, vpp = self.get("pp"), self.get("vpp")
        if model is None or pp == 1:
            return
        layers = model.num_hidden_layers
        if self.stages and sum(self.stages) != layers:
            raise InputError(
                f"{self.files[0]}: the stages hold {counted(sum(self.stages), 'layer')}, but the model has {layers}"
            )
        if self.stages and len(self.stages) != pp * vpp:
            words = f"{self.origin('pp')} x {self.origin('vpp')}" if vpp > 1 else self.origin("pp")
            raise self.refused(
                f"the files cut the layers into {counted(len(self.stages), 'stage')}, but {words} makes {pp * vpp}"
            )
        if self.stages or self.engine in UNEVEN:
            return
        if self.engine in RECIPES and layers % (pp * vpp) and (layers + 2) % (pp * vpp) == 0:
            self.ends = (1, 1)
            self.assume(
                f"embedding and output count as layers where the {layers} layers are cut into "
                f"{counted(pp * vpp, 'stage')}"
            )
        if any(self.ends) and (layers + sum(self.ends)) % (pp * vpp) == 0:
            self.stages = even_stages(layers, pp * vpp, ends=self.ends)
        elif (layers + sum(self.ends)) % (pp * vpp):
            stages = f"{self.origin('pp')}" + (f" x {counted(vpp, 'virtual stage')}" if vpp > 1 else "")
            raise self.refused(f"{counted(layers, 'layer')} {'does' if layers == 1 else 'do'} not divide by {stages}")
