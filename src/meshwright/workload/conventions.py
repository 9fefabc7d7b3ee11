"""Conventions of a training stack, as facts: in which type things travel and are held, what is sent how often.

`ENGINE` is what `parallel/` does, and `engine(precision)` the same where its forward runs in another type. Other
stacks do what `Conventions()` says, but for what `STACKS` says of them; their fitted constants are in
`plan/analytic/data`. Every fact is a number, or an array with one for each run of a table. What an engine can run is in
`engines` beside this, each fact with its source.
"""

import msgspec

from .elements import HALF_BYTES, LOW_BYTES, MOMENTS_BYTES, NIBBLE_BYTES, SINGLE_BYTES, STATES_BYTES
from .program import Number
from .recomputed import INPUT, away_number, modules_number

# Bytes of a frozen weight in few bits, beside adapters: its code and its share of the scales. nf4 of bitsandbytes has a
# scale of 4 bytes for 64 weights, nested 1 byte for these and 4 for 256 scales (Dettmers et al. 2023, arXiv 2305.14314,
# section 3); GPTQ and AWQ have 2 bytes and a zero of 4 bits for 128
FROZEN_BYTES = {
    "nf4": NIBBLE_BYTES + SINGLE_BYTES / 64,
    "nf4-nested": NIBBLE_BYTES + LOW_BYTES / 64 + SINGLE_BYTES / (64 * 256),
    "int4": NIBBLE_BYTES + (HALF_BYTES + NIBBLE_BYTES) / 128,
    "int8": float(LOW_BYTES),
}
EMULATES = {"fp8": False, "fp8-emulated": True}  # precisions in 8 bits of our own engine: are products emulated?


class Conventions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Facts about a stack; switches are 1 for yes and 0 for no.

    Types: bytes of an element of what travels, and of what is held for each parameter. The defaults are what most
    published stacks do: half precision with master weights, Megatron-LM's sends and sums, torchtitan's pipelines.
    """

    weight_bytes: Number = HALF_BYTES  # of a weight that is gathered
    gradient_bytes: Number = SINGLE_BYTES  # of a gradient that travels, and of its sum over micro-batches
    scattered_bytes: Number = 0  # ZeRO 2, 3: of a gradient that travels; 0: as `gradient_bytes`
    residual_bytes: Number = HALF_BYTES  # of activations between layers, and as they enter products
    product_bytes: Number = HALF_BYTES  # of what products return
    optimizer_bytes: Number = STATES_BYTES  # of a parameter's moments, and of its master copy where there is one
    ends_moment_bytes: Number = 0  # of embedding and output beside that: Muon leaves them to AdamW
    paged_bytes: Number = 0  # of these, in memory that is moved to the host where the device is full (bitsandbytes)
    steps_early: Number = 0  # each gradient is used up and freed as soon as it is there, where there is one micro-batch
    reshards: Number = 0  # ZeRO in a pipeline: weights are gathered and gradients scattered in each micro-batch
    # ZeRO 3: embedding, last norm and output stay whole from their forward to their backward. 0: no; 1: all of them;
    # 2: last norm and output, and an embedding where it is the output's matrix
    root_stays: Number = 0
    whole_halves: Number = 0  # ZeRO 2, 3 under schedule=zb: a stage's weights and gradients are whole in between
    sends_cut: Number = 1  # sends between stages are cut over tp
    keys_ring: Number = 1  # cp: keys and values pass round a ring beside attention, twice backwards; 0: gathered before
    heads_exchanged: Number = 0  # cp: in place of both, rows for heads before attention and back after it
    routed_cut: Number = 1  # ep: under sequence parallelism rows to the experts are cut over tp
    routed_once: Number = 0  # ep: a row goes once to each host, and once to each rank there (DeepEP, HybridEP)
    experts_beside: Number = 0  # a token's experts are neighbours, those after the token's before (a benchmark's gate)
    router_cut: Number = 0  # under sequence parallelism a router has its rank's rows alone, and gathers none
    router_messages: Number = 0  # ep: counts of rows travel first; under tp what the router chose is joined
    # priced by themselves: what embedding, output and loss send along tp, and sums of gradients that ranks hold parts
    # of. 0: they are within constants that were fitted to runs, as a router's messages are
    ends_sent: Number = 0
    experts_copied: Number = 1  # ZeRO 2, 3: copies of a sharded model have their own experts; 0: all ranks share them
    # ZeRO 2, 3: gradients of a step's micro-batches add up whole on each rank, and are scattered once (FSDP's no_sync)
    sums_whole: Number = 0
    bucket: Number = 0  # parameters whose gradients travel together, where it is said
    gather_waits: Number = 0  # up to this stage of ZeRO weights are waited for after the update; 0: beside the forward
    stops_early: Number = 0  # recomputation ends before the last sum of a layer, whose result nobody needs
    # offload: bytes of an element between device and host, and what goes on meanwhile
    host_weight_bytes: Number = HALF_BYTES
    host_gradient_bytes: Number = SINGLE_BYTES
    host_beside: Number = 0  # offload=optimizer: with ZeRO 2 gradients leave beside each backward; 0: once
    host_share: Number = 1.0  # offload=optimizer: of a rank's states, and of the update; the rest is the device's
    lone_experts_stay: Number = 0  # offload=parameters: on the device, where one rank has them alone; their states go
    host_overlaps: Number = 0  # the first weights come back while the host still updates others
    cut_by_cost: Number = 0  # stages of a pipeline are cut where that balances their cost; 0: as evenly as can be
    # what lies in memory
    held_weight_bytes: Number = HALF_BYTES  # of a weight that a rank holds whole, copies for fp8 products included
    held_gradient_bytes: Number = SINGLE_BYTES  # of a gradient's sum over micro-batches
    gathers_matrix: Number = 0  # ZeRO 3: weights are gathered and gradients scattered a matrix at a time; 0: a layer
    # a step of one micro-batch has no gradients before its backward. 0: it has; 1: all from there on; 2: each as it is
    # made, on a rank whose gradients are all
    gradients_late: Number = 0
    roots_at_once: Number = 0  # the update makes the roots of all second moments at once (torch's AdamW on lists)
    sums_apart: Number = 0  # ZeRO 1: a rank's share of the summed gradients lies in a buffer of its own
    shares_single: Number = 0  # ZeRO 2, 3: a rank's share of the weights is in single precision, and the master copy
    low_input_bytes: Number = LOW_BYTES  # of what enters a product in 8 bits or fewer, as it is kept for backward
    gate_kept: Number = 0  # the gate's activation is kept beside its product with the other half
    # 0: all but attention's inside; 1: every second product; 2: all products; 3: as 1, without a layer's last
    selective_saves: Number = 0
    imbalance: Number = 1.0  # rows of the fullest rank's experts over a rank's rows on average
    returned_kept: Number = 1  # the rows that come back from experts are kept, to learn their weights from
    gate_bytes: Number = 0  # of what enters the experts' activation function, as it is kept; 0: as products return it
    modules_again: Number = 0  # recomputed in place of that: the sum of 2^place of some of `recomputed.MODULES`
    results_kept: Number = 0  # kept in place of that: twice the sum of 2^place of some of `recomputed.RESULTS`, and 1
    results_away: Number = 0  # of these, in the host's memory until backward: the sum of 2^place in `recomputed.AWAY`
    layers_again: Number = 0  # of a virtual stage, that full recomputation repeats (Megatron-LM's block); 0: all
    logit_bytes: Number = SINGLE_BYTES  # of a logit at the peak of the loss, its copies and gradients together
    parallel_logit_bytes: Number = 0  # the same where the vocabulary is cut over tp; 0: as many
    loss_chunks: Number = 1  # parts of a sequence whose logits exist one after the other
    loss_rows: Number = 0  # rows of logits that exist at once, where output and loss are one; 0: all of a part
    norms_single: Number = 0  # norms of several operators, which keep their input in single precision and its norm
    one_projection: Number = 1  # queries, keys and values are parts of one tensor, which lives as long as the values
    gathers_kept: Number = 0  # sequence parallelism: products keep the rows that they gathered
    norm_copies: Number = 1  # of the rows that enter a norm, kept for its backward: 2 with the normalised rows
    cast_bytes: Number = 0  # of a layer's weight: its copy in the type of the products, kept for backward (autocast)
    output_cast_bytes: Number = 0  # the same of the output's weights, which are never in 8 bits
    weighted_kept: Number = 0  # ep: rows are kept once more as they are weighted, in the residual stream's type
    frees_early: Number = 0  # the peak is looked for at each moment of a backward that frees what it has used
    spare_gradient_bytes: Number = HALF_BYTES  # of a layer's weights: gradients that fused sums leave unused
    master_bytes: Number = SINGLE_BYTES  # of the master copy in `optimizer_bytes`: single shares are it themselves
    trained: Number = 1.0  # share of the parameters that has gradients and states; the rest is frozen
    # of a frozen weight of a layer's products that lies in fewer bits than it multiplies in; 0: in those of all others
    base_bytes: Number = 0
    base_share: Number = 1.0  # of the frozen weights, that lies so: all but embedding and output
    # low-rank adapters: one of queries, keys and values together and one of gate and up, as of Megatron's joined
    # matrices (NVIDIA-NeMo/Megatron-Bridge:src/megatron/bridge/peft/lora.py, target_modules); 0: one each
    joined_adapters: Number = 1
    # beside adapters: a gated network's backward writes over what it kept, and makes what its activation returned anew
    gates_overwritten: Number = 0
    adapters_cast: Number = 0  # adapters in single precision under autocast: each keeps a copy of what enters it
    # of activations: what the allocator holds beyond what is in use; 0: places are chosen ahead of the run
    fragments: Number = 0.14


ENGINE = Conventions(
    weight_bytes=SINGLE_BYTES, residual_bytes=SINGLE_BYTES, product_bytes=SINGLE_BYTES, optimizer_bytes=MOMENTS_BYTES,
    reshards=1, root_stays=1, whole_halves=1, sends_cut=0, keys_ring=0, routed_cut=0, router_cut=1, router_messages=1,
    ends_sent=1, experts_copied=0, gather_waits=1, lone_experts_stay=1, stops_early=1, host_weight_bytes=SINGLE_BYTES,
    held_weight_bytes=SINGLE_BYTES, sums_apart=1,
    shares_single=1, gate_kept=1, selective_saves=2, logit_bytes=3 * SINGLE_BYTES,
    parallel_logit_bytes=4 * SINGLE_BYTES, gathers_kept=1, norm_copies=2, weighted_kept=1, frees_early=1,
    spare_gradient_bytes=0, master_bytes=0,
    cut_by_cost=1, joined_adapters=0,
)  # fmt: skip
LOGIT_GRADIENT_BYTES = 2 * SINGLE_BYTES  # of `logit_bytes`: gradients in the loss's backward; the rest was kept for it


def engine(precision: str = "float32") -> Conventions:
    """Return what our own engine does: in half precision it runs under torch's autocast.

    Products then return fewer bytes and keep a cast copy of their weights for backward, made anew in every micro-batch;
    the residual stream, norms and losses stay in single precision. In fp8 torchao keeps what enters a layer's products
    as autocast has it and the weights as they are, and rounds both again in backward
    (torchao/float8/float8_linear.py): no copy of them is kept, but of the output's, which stay under autocast.
    """
    if precision in {"float32", "fp32"}:
        return ENGINE
    cast = 0 if precision in EMULATES else HALF_BYTES
    return msgspec.structs.replace(
        ENGINE, product_bytes=HALF_BYTES, low_input_bytes=HALF_BYTES, cast_bytes=cast, output_cast_bytes=HALF_BYTES
    )


OWN = "meshwright"
# PyTorch's FSDP2 and kernels of PyTorch: shares in single precision, inputs kept as they are, a loss of its own that
# has the logits' softmax and two gradients in single precision at once. `zero_grad` drops gradients
# (torch/optim/optimizer.py, set_to_none), and on GPUs AdamW works on lists of tensors unless it is asked to be fused
# (_default_to_fused_or_foreach): so Trainer's adamw_torch, its default below torch 2.8
# (huggingface/transformers:src/transformers/training_args.py), and LitGPT's and prime-rl's
SHARDED = Conventions(
    root_stays=1, host_weight_bytes=SINGLE_BYTES, shares_single=1, low_input_bytes=HALF_BYTES, gate_kept=1,
    logit_bytes=3 * SINGLE_BYTES, spare_gradient_bytes=0, joined_adapters=0, gradients_late=2, roots_at_once=1,
)  # fmt: skip
EVERY_SECOND = msgspec.structs.replace(  # the gate's activation is computed again
    SHARDED, selective_saves=1, gate_kept=0, gathers_kept=1, parallel_logit_bytes=4 * SINGLE_BYTES, fragments=0.12
)
TITAN_2024 = msgspec.structs.replace(EVERY_SECOND, selective_saves=3)  # compiled layers
# torchtitan 0.3 computes output and loss of an eighth of the sequence at a time (components/loss.py,
# ChunkedLossWrapper); it compiles only where asked to, and AdamW is fused (config, Optimizer.implementation)
TITAN = msgspec.structs.replace(EVERY_SECOND, loss_chunks=8, roots_at_once=0, root_stays=2)
# XLA computes softmax and its gradient again inside the products and sums that read them: there are logits as the
# product returns them, and their gradient, which enters two products. Google's recipe of Llama 3.1 70B ran with 5 x
# 8,192 tokens a chip of 32 GiB (AI-Hypercomputer/tpu-recipes:training/trillium), where single precision beside these
# would be 29 GiB. Buffers get their places when a step is compiled: nothing is left over between them. Each weight is
# gathered before its product and its gradient scattered after it (GSPMD, Xu et al. 2021, arXiv 2105.04663), and
# gradients are a result of the backward: there are none before it
XLA = msgspec.structs.replace(
    SHARDED, root_stays=0, logit_bytes=2 * HALF_BYTES, gathers_matrix=1, gradients_late=1, roots_at_once=0, fragments=0
)
# MaxText's remat_policy minimal_with_context keeps what products and attention return, by name
# (AI-Hypercomputer/maxtext:src/maxtext/layers/decoders.py, minimal_policy; layers/moe.py has the names too)
MAXTEXT = msgspec.structs.replace(XLA, selective_saves=2)
# models of transformers, not compiled: LlamaRMSNorm in single precision, three projections, logits that the caller has
# beside their softmax and two gradients in single precision (models/llama/modeling_llama.py, loss/loss_utils.py). FSDP
# scatters gradients in the type of the computation: Accelerate asks for that (src/accelerate/utils/dataclasses.py,
# set_mixed_precision: reduce_dtype), and where nobody asks PyTorch does so
EAGER = msgspec.structs.replace(
    SHARDED, norms_single=1, one_projection=0, logit_bytes=HALF_BYTES + 3 * SINGLE_BYTES, scattered_bytes=HALF_BYTES
)
# NeMo Automodel loads weights in the type of the checkpoint, bfloat16, and PyTorch's Adam keeps its moments in it
# (torch_dtype="auto", nemo_automodel/_transformers/auto_model.py); recipes that ask for float32 say so. Its selective
# recomputation keeps every second product (components/distributed/activation_checkpointing.py)
HALF_STATES = {
    "shares_single": 0, "held_gradient_bytes": HALF_BYTES, "optimizer_bytes": 2 * HALF_BYTES, "master_bytes": 0,
    "host_weight_bytes": HALF_BYTES, "host_gradient_bytes": HALF_BYTES,
}  # fmt: skip
IN_HALF = msgspec.structs.replace(SHARDED, **HALF_STATES)
# torchtune: with dtype=bf16 "all activations, gradients and optimizer states are in bfloat16", and fp32 is the other
# choice (recipes/full_finetune_single_device.py); its losses cut output and logits into eight parts
# (torchtune/modules/loss/cross_entropy_loss.py, num_output_chunks); AdamW is fused (recipes/configs)
TORCHTUNE = msgspec.structs.replace(IN_HALF, loss_chunks=8, roots_at_once=0)
# LitGPT under bf16-true: weights and AdamW's moments in half precision, logits as products return them, their softmax
# and gradients alike (lit_gpt/utils.py, chunked_cross_entropy; finetune/lora.py)
LITGPT = msgspec.structs.replace(IN_HALF, logit_bytes=4 * HALF_BYTES)
# nanotron: gradients add up in single precision beside weights in half (optim/gradient_accumulator.py); the loss has
# logits and softmax in single precision, whose place the gradient takes (parallel/tensor_parallel/functional.py)
NANOTRON = Conventions(gate_kept=1, logit_bytes=2 * SINGLE_BYTES, joined_adapters=0)
# picotron: weights and AdamW's moments in half precision, gradients added up and reduced in single precision
# (huggingface/picotron:picotron/data_parallel/data_parallel.py); logits as LitGPT has them
PICOTRON = Conventions(
    gate_kept=1, logit_bytes=4 * HALF_BYTES, joined_adapters=0, optimizer_bytes=2 * HALF_BYTES, master_bytes=0
)
# prime-rl: FSDP2 over weights in single precision, reduced in it; the caller has the logits in single precision beside
# their softmax and two gradients (src/prime_rl/trainer/model.py, setup_fsdp and forward)
PRIME_RL = msgspec.structs.replace(SHARDED, logit_bytes=4 * SINGLE_BYTES)
# DeepSeek-V3's report (arXiv 2412.19437), 3.2.3 and 3.3.3: norms, latent attention's lifted queries, keys and values
# and the activation function are computed again, whose inputs are kept in 8 bits; moments in half precision; DeepEP,
# which weighs the experts' rows as it brings them back
DEEPSEEK = Conventions(
    modules_again=modules_number(("layernorm", "mla_up_proj", "moe_act")), gate_bytes=LOW_BYTES, returned_kept=0,
    routed_once=1, optimizer_bytes=SINGLE_BYTES + 2 * HALF_BYTES,
)  # fmt: skip
# before fused losses and sums of gradients
UNFUSED = Conventions(logit_bytes=HALF_BYTES + SINGLE_BYTES, spare_gradient_bytes=0)
# ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840): half-precision gradients leave as backward makes them, and CPU-Adam
# copies weights back tile by tile; Megatron-LM's --optimizer-cpu-offload overlaps only where a flag of its own says so
# under ZeRO gradients travel and add up in the type of the model (runtime/engine.py, get_data_types,
# communication_data_type), and a step ends with the gather of what ZeRO 1 and 2 updated (runtime/zero/stage_1_and_2.py,
# step)
DEEPSPEED = msgspec.structs.replace(
    EAGER, root_stays=0, shares_single=0, gradient_bytes=HALF_BYTES, held_gradient_bytes=HALF_BYTES,
    host_weight_bytes=HALF_BYTES, host_gradient_bytes=HALF_BYTES, host_beside=1, host_overlaps=1,
    gradients_late=0, roots_at_once=0, gather_waits=2,  # buffers of its own, and FusedAdam (runtime/zero, ops/adam)
)  # fmt: skip
# Unsloth on models of transformers (unslothai/unsloth:unsloth/kernels): a norm is one kernel that keeps what enters it
# (rms_layernorm.py); networks with adapters keep what enters them, gate and up, whose gradients lie in these, and the
# activation's result in the place of its own gradient; adapters are cast and not the rows (fast_lora.py, LoRA_MLP and
# matmul_lora). What enters a layer waits on the host: use_gradient_checkpointing is "unsloth" by default (unslothai/
# unsloth-zoo:unsloth_zoo/gradient_checkpointing.py). Output and loss are one, of as many rows as half of the free
# memory has room for, 4 GiB at most (unsloth_zoo/fused_losses/cross_entropy_loss.py), so that they never decide what
# fits: here as many as TRL's. All else is as EAGER has it
UNSLOTH = msgspec.structs.replace(
    EAGER, norms_single=0, gate_kept=0, gates_overwritten=1, results_away=away_number((INPUT,)), loss_rows=512
)
# PEFT since 0.10 has adapters in single precision beside frozen weights in half (src/peft/mapping_func.py,
# autocast_adapter_dtype), casts what enters each to it, drops some, and autocast has it in half again
# (src/peft/tuners/lora/layer.py, Linear.forward); TRL and ms-swift train with bf16 = True and a dropout of 0.05
STACKS = {  # published ones that do otherwise than most
    **dict.fromkeys(("vtrainm", "vtrains"), msgspec.structs.replace(UNFUSED, gradient_bytes=HALF_BYTES)),
    **dict.fromkeys(("bloom", "sc21t1", "sc21t2", "mlmreadme", "before-2023"), UNFUSED),
    "deepspeed": DEEPSPEED,
    **dict.fromkeys(("accelerate", "fsdp"), EAGER),
    "in-2023": SHARDED,
    # its report says nothing of how gradients lie or what the update makes (arXiv 2407.21783, 3.3)
    "llama3paper": msgspec.structs.replace(SHARDED, gradients_late=0, roots_at_once=0),
    "pax": XLA,
    "maxtext": MAXTEXT,
    "automodel": msgspec.structs.replace(IN_HALF, selective_saves=1),
    # ms-swift loads weights in the type of the checkpoint, half precision, and hands them to the Trainer so
    # (swift/llm/model/register.py, torch_dtype); under DeepSpeed its engine keeps master copies: --stack deepspeed
    "ms-swift": msgspec.structs.replace(EAGER, adapters_cast=1, **HALF_STATES),
    # TRL's SFTTrainer has output and loss of some rows at a time where its loss_type is chunked_nll, today's default
    # (huggingface/trl:trl/trainer/sft_trainer.py); "nll" is --loss whole
    "trl": msgspec.structs.replace(EAGER, loss_rows=512, adapters_cast=1),
    "unsloth": UNSLOTH,
    "torchtune": TORCHTUNE,
    "litgpt": LITGPT,
    "nanotron": NANOTRON,
    "picotron": PICOTRON,
    "prime-rl": PRIME_RL,
    "deepseek": DEEPSEEK,
    # one bucket of 768 million: mlcommons/training_results_v5.1, config_common_8b.sh of every submission on NeMo
    "mlperf_8b": Conventions(bucket=768_000_000),
    "titan": TITAN_2024,
    "torchtitan": TITAN,
    # its loss works in place, and its DecoupledAdamW on one tensor at a time (mosaicml/composer:composer/optim)
    "mpt": msgspec.structs.replace(SHARDED, logit_bytes=SINGLE_BYTES, roots_at_once=0),
    # PyTorch reduces gradients in the type of the computation, where no other is asked for
    **dict.fromkeys(("fms", "sharded-since-2024"), msgspec.structs.replace(EVERY_SECOND, gradient_bytes=HALF_BYTES)),
}
# Megatron-Core multiplies by the router's probabilities before the experts' second product, so that nothing needs the
# rows that come back (NVIDIA/Megatron-LM:megatron/core/transformer/moe/experts.py, permuted_probs; TransformerEngine's
# pull request 1468); so does NeMo Automodel
WEIGHED_INSIDE = frozenset({"bridge", "automodel", "simumax_moe", "since-2024"})
# in 8 bits and fewer NVIDIA's recipes sum and reduce gradients in half precision
HALF_SUMS = frozenset({"bridge", "nemo", "dgxc", "since-2024", "mlperf_gpt3", "mlperf_405b", "mlperf_8b"})
# torchtitan casts weights to float8 before it gathers them (enable_fsdp_float8_all_gather, docs/float8.md); scales by
# row are found after the gather. NVIDIA's submissions to MLPerf of 2025 gather weights as they multiply them
# (FP8_PARAM_GATHER in config_common.sh)
LOW_GATHERS = frozenset({"titan", "torchtitan", "mlperf_405b", "mlperf_8b"})
ROUTED_ONCE = frozenset({"bridge", "automodel"})  # their recipes dispatch by DeepEP and HybridEP
DESCRIBED = frozenset({OWN, *STACKS, *HALF_SUMS, *ROUTED_ONCE, *WEIGHED_INSIDE})  # stacks with facts of their own
HIGH = frozenset({"bf16", "fp16", "fp32", "float32"})


def conventions_of(stack: str, precision: str = "bf16") -> Conventions:
    """Return the facts of a stack, of ours those of a precision; of one that nobody described, those of most."""
    if stack == OWN:
        return engine(precision)
    found = STACKS.get(stack, Conventions())
    if stack in ROUTED_ONCE:
        found = msgspec.structs.replace(found, routed_once=1)
    if stack in WEIGHED_INSIDE:
        found = msgspec.structs.replace(found, returned_kept=0)
    if stack in LOW_GATHERS and precision == "fp8":
        found = msgspec.structs.replace(found, weight_bytes=LOW_BYTES)
    if stack in HALF_SUMS and precision not in HIGH:
        return msgspec.structs.replace(found, held_gradient_bytes=HALF_BYTES, gradient_bytes=HALF_BYTES)
    return found
