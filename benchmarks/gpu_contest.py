"""A decoder of a billion parameters on one GPU, beside plain PyTorch and transformers: tokens per second and MFU.

All train the same sizes on the same batches: autocast to bfloat16 over float32 weights, torch.compile, PyTorch's fused
attention, fused AdamW, gradients clipped. Each contestant has a process of its own, and they take turns. Without a GPU
the rows say that nothing was measured.

Options: --rounds N (default 3), --steps N of each turn (default 20, after 5), --batch N sequences (default 8), --tiny:
a decoder of a few thousand parameters, not compiled, on a CPU too, to try this program.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.result import Result
from meshwright import device as devices
from meshwright.workload.transformer import ModelConfig, describe_workload

BILLION = ModelConfig(
    vocab_size=32768, hidden_size=2048, intermediate_size=5632, num_hidden_layers=20, num_attention_heads=16,
    num_key_value_heads=16, max_position_embeddings=2048, initializer_range=0.02,
)  # fmt: skip
TINY = ModelConfig(num_hidden_layers=2, hidden_size=32, intermediate_size=96)
WARM_UP = 5
RATE = 1e-4
Step = Callable[[int], None]


def run(arguments: list[str], environment: dict[str, str] | None = None, timeout_s: float | None = None) -> Result:
    """Give each contestant its turns and return a row for each; `environment` is that of their processes, and
    `timeout_s` the longest that one turn may take.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu_contest")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    model = TINY if options.tiny else BILLION
    workload = describe_workload(model, seq_len=model.max_position_embeddings, micro_batch=options.batch)
    title = f"{workload.parameters / 1e6:,.1f} million parameters on one device"
    if not options.tiny and not devices.count():
        rows = [{"contestant": name, "tokens_per_s": "", "mfu": "", "remark": "not measured: no GPU"} for name in STEPS]
        return Result(title, rows)
    times: dict[str, list[float]] = {name: [] for name in STEPS}
    remarks: dict[str, str] = {}
    for _ in range(options.rounds):
        for name in STEPS:
            command = [sys.executable, "-m", "benchmarks.gpu_contest", name, str(options.steps), str(options.batch)]
            try:
                done = subprocess.run(
                    [*command, *["--tiny"] * options.tiny],
                    capture_output=True, text=True, check=False, env=environment, timeout=timeout_s,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                remarks[name] = "not measured: did not end in its time"
                continue
            if done.returncode:
                remarks[name] = f"not measured: {done.stderr.strip().splitlines()[-1]}"
            else:
                times[name] += json.loads(done.stdout.splitlines()[-1])
    peak_flops_per_s = _peak_flops_per_s() if devices.count() else None
    rows = []
    for name, values in times.items():
        step_s = statistics.median(values) if values else None
        mfu = workload.model_flops / step_s / peak_flops_per_s if step_s and peak_flops_per_s else ""
        tokens_per_s = workload.tokens / step_s if step_s else ""
        rows.append({"contestant": name, "tokens_per_s": tokens_per_s, "mfu": mfu, "remark": remarks.get(name, "")})
    device = devices.name() if devices.count() else "the CPU"
    return Result(title, rows, [f"{device}; target: MFU of at least 0.5, and no contestant faster than Meshwright"])


def _peak_flops_per_s() -> float:
    from meshwright.hardware.catalogue import load_catalogue

    return devices.peak_flops_per_s(load_catalogue(), devices.name(), torch.bfloat16)


def _batch(model: ModelConfig, batch: int, number: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(number)
    tokens = torch.randint(model.vocab_size, (batch, model.max_position_embeddings + 1), generator=numbers).to(device)
    return tokens[:, :-1], tokens[:, 1:]


def meshwright_steps(model: ModelConfig, batch: int, device: torch.device, compiled: bool) -> Step:
    """Return a step of the engine that `meshwright train` runs."""
    from meshwright.layout import Layout, Plan
    from meshwright.parallel.api import UNPRICED, Silent
    from meshwright.parallel.build import build_engine
    from meshwright.parallel.engine import Settings
    from meshwright.train.job.config import OptimizerConfig
    from meshwright.train.model.decoder import Decoder
    from meshwright.train.model.optimizer import make_optimizer

    length = model.max_position_embeddings
    plan = Plan(
        layout=Layout(mbs=batch), predicted=UNPRICED, global_batch_sequences=batch, seq_len=length, bucket_bytes=2**25
    )
    config = OptimizerConfig(learning_rate=RATE)
    settings = Settings(
        device, lambda part: make_optimizer(part, config), Silent(), 1.0, autocast=torch.bfloat16, compiled=compiled
    )
    engine = build_engine(Decoder(model).to(device), plan, settings)

    def step(number: int) -> None:
        engine.step([_batch(model, batch, number, device)], batch * length, number=number)
        devices.synchronize(device)  # as the others do within a step

    return step


def plain_steps(model: ModelConfig, batch: int, device: torch.device, compiled: bool) -> Step:
    """Return a step as one writes it in PyTorch, of the same module."""
    from meshwright.train.model.decoder import Decoder

    module = Decoder(model).to(device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, fused=True)
    forward = torch.compile(module) if compiled else module

    def step(number: int) -> None:
        inputs, targets = _batch(model, batch, number, device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = forward(inputs, targets) / targets.numel()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        devices.synchronize(device)

    return step


def trainer_steps(model: ModelConfig, batch: int, device: torch.device, compiled: bool, count: int) -> list[float]:
    """Return the seconds of the steps of transformers' Trainer on a Llama of the same sizes."""
    import tempfile

    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    sizes = {name: getattr(model, name) for name in model.__struct_fields__ if hasattr(LlamaConfig(), name)}
    llama = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="sdpa"))
    length, times = model.max_position_embeddings, []

    class Samples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return batch * count

        def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
            tokens = torch.randint(model.vocab_size, (length,), generator=torch.Generator().manual_seed(number))
            return {"input_ids": tokens, "labels": tokens}

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            devices.synchronize(device)
            times.append(time.perf_counter() - self.start)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=count, per_device_train_batch_size=batch, bf16=True, torch_compile=compiled,
            optim="adamw_torch_fused", learning_rate=RATE, max_grad_norm=1.0, save_strategy="no", report_to=[],
            logging_strategy="no", disable_tqdm=True, use_cpu=device.type not in ("cuda", "xpu"),
        )  # fmt: skip
        Trainer(model=llama, args=arguments, train_dataset=Samples(), callbacks=[Clock()]).train()
    return times


STEPS: dict[str, Any] = {"meshwright": meshwright_steps, "PyTorch": plain_steps, "transformers' Trainer": trainer_steps}


def _turn(name: str, steps: int, batch: int, *, tiny: bool) -> list[float]:
    """Return the seconds of the steps of one contestant in this process."""
    model, device = (TINY if tiny else BILLION), devices.device()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    if STEPS[name] is trainer_steps:
        return trainer_steps(model, batch, device, not tiny, WARM_UP + steps)[WARM_UP:]
    step, times = STEPS[name](model, batch, device, not tiny), []
    for number in range(WARM_UP + steps):
        start = time.perf_counter()
        step(number)
        times.append(time.perf_counter() - start)
    return times[WARM_UP:]


if __name__ == "__main__":
    sys.stdout.write(
        "\n" + json.dumps(_turn(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), tiny="--tiny" in sys.argv)) + "\n"
    )
