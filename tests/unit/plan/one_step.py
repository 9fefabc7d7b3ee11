"""The layouts of the parity table as planners take them: a model's sizes beside its graph, cut into the same stages."""

import itertools
from collections import Counter

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout, micro_batches
from meshwright.pipelines import SLACK, StageTarget, best_cut, schedule
from meshwright.plan.analytic import Setting
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.workload.chain import chain_units
from meshwright.workload.stages import rank_of_stages, step_program
from meshwright.workload.transformer import describe_workload
from tests.multiproc.parallel.layouts import EXPERTS, FAST, OFFLOADED, SLOW, UNTIED, Case
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, small_model
from tests.unit.plan.analytic.test_own_memory import AUTOCAST, architecture_of

AWAY = (
    Case("dp=2,mbs=2,zero=3,offload=parameters"),
    Case("dp=2,pp=2,mbs=1,zero=3,offload=parameters", UNTIED),
    Case("dp=2,ep=2,mbs=2,zero=3,offload=parameters", EXPERTS),  # experts of one rank alone
    Case("dp=4,ep=2,mbs=1,zero=3,offload=parameters", EXPERTS),
)
CASES = (*FAST, *SLOW, *OFFLOADED, *AWAY)


class Step:
    """One step of a case: its layout, its program, and the same model and batch as a planner's setting."""

    def __init__(self, case: Case, precision: str = "fp32") -> None:
        self.layout, self.model = Layout.parse(case.layout), small_model(**case.model)
        layout, model = self.layout, self.model
        self.micro = micro_batches(layout, GLOBAL_BATCH)
        bounds = self._bounds()
        self.stages = tuple(  # layers of each
            len(set(range(a, b)) - {0, bounds[-1] - 1}) for a, b in itertools.pairwise(bounds)
        )
        workload = describe_workload(
            model, seq_len=SEQ_LEN, micro_batch=layout.mbs, layout=layout, autocast=AUTOCAST[precision]
        )
        self.program = step_program(workload, layout, self.micro, bounds=bounds)
        self.setting = Setting(
            architecture=architecture_of(model), cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8),
            gpus=layout.world_size, global_batch=GLOBAL_BATCH, seq_len=SEQ_LEN, precision=precision,
        )  # fmt: skip

    def said(self, program=None) -> list[Counter]:
        """Return what a program says of a rank at each place of the pipeline."""
        holders = rank_of_stages(self.layout, self.micro)
        return [
            (program or self.program).calls(stage for stage, holder in enumerate(holders) if holder == rank)
            for rank in range(self.layout.pp)
        ]

    def _bounds(self) -> tuple[int, ...]:
        """Return the stages in the chain of embedding, layers and output, as the engine cuts it."""
        layout, model = self.layout, self.model
        if layout.pp == 1:
            return 0, model.num_hidden_layers + 2
        whole = describe_workload(model, seq_len=SEQ_LEN, micro_batch=layout.mbs)
        target = StageTarget.of(schedule(layout.schedule, layout.pp, layout.vpp, self.micro))
        return best_cut(chain_units(whole, recompute=layout.recompute), target, slack=SLACK).bounds
