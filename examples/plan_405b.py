"""Planning Llama 3 405B on 16,384 H100: all legal layouts priced, the fastest beside the published one.

    python examples/plan_405b.py

You see how many layouts were priced in how many seconds, the fastest one and what it spends its step on, and the layout
that Meta published for this stage of the training (tp=8, pp=16, dp=128, 8,192 tokens), priced by the same model beside
the 41 % MFU that was reported for it; it ran, but by the memory of the stack taken here it does not fit, so that the
fastest one, which does, may be slower. Meta's own stack is not known: the one taken here is what PyTorch's sharding has
done since 2024, priced by its facts.
"""

import time

from meshwright.hardware import load_catalogue
from meshwright.plan.request import PlanRequest, priced_layout, setting_of
from meshwright.plan.search.explore import explore
from meshwright.units import format_bytes, format_time
from meshwright.workload.models import load_model

PUBLISHED = "tp=8,pp=16,dp=128,vpp=8,mbs=1,zero=2,sp=1,schedule=interleaved"  # Grattafiori et al. 2024, 3.3.2, table 4


def main() -> None:
    model = load_model("llama3-405b")
    request = PlanRequest(
        model=model, cluster="dgx-h100", gpus=16384, global_batch=2048, seq_len=8192, stack="sharded-since-2024"
    )
    setting = setting_of(request, load_catalogue())
    begun = time.perf_counter()
    study = explore(setting, model=model.name)
    print(f"{study.legal:,} legal layouts priced in {time.perf_counter() - begun:.1f} s")
    for name, row in {"fastest": study.best, "published": priced_layout(setting, PUBLISHED)}.items():
        p = row.predicted
        print(
            f"{name:<10} {row.layout}: step {format_time(p.step_time_s)}, MFU {p.mfu:.1%}, exposed communication "
            f"{format_time(p.exposed_comm_s)}, bubble {format_time(p.bubble_s)}, "
            f"{format_bytes(p.peak_memory_bytes_per_gpu)} a GPU ({row.fits})"
        )
    print(study.reason)


if __name__ == "__main__":
    main()
