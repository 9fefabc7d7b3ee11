"""Memory of our own engine in `plan`: as `train`'s planner, and as autograd keeps in a real forward."""

from random import Random

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.pipelines import even_stages, peak_in_flight, schedule
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.loads import kept_at_once, rank_chunks, unequal_chunks
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.layouts.legality import illegal, unrunnable
from meshwright.train.model.decoder import Decoder
from meshwright.workload.architecture import Architecture
from meshwright.workload.conventions import LOGIT_GRADIENT_BYTES
from meshwright.workload.float8 import in_float8
from meshwright.workload.functional import vocabulary_cross_entropy
from meshwright.workload.held import peak
from meshwright.workload.holdings import held_by, kept_activation_bytes
from meshwright.workload.transformer import ModelConfig, describe_workload

AUTOCAST = {"fp32": "", "bf16": "bf16"}
MODELS = {
    "default sizes": ModelConfig(num_key_value_heads=2),
    "grouped queries, wide": ModelConfig(
        num_attention_heads=4, num_key_value_heads=2, intermediate_size=512, num_hidden_layers=2
    ),
    "untied, many words": ModelConfig(
        tie_word_embeddings=False, num_key_value_heads=2, vocab_size=2048, num_hidden_layers=3
    ),
    "experts": ModelConfig(
        num_local_experts=4, num_key_value_heads=2, hidden_size=256, num_hidden_layers=2, num_attention_heads=4
    ),
}
LAYOUTS = [
    *("dp=8,mbs=2", "dp=8,mbs=2,zero=1", "dp=8,mbs=2,zero=2", "dp=8,mbs=2,zero=3", "dp=4,replicas=2,mbs=2,zero=3"),
    *("tp=2,dp=4,mbs=2", "tp=2,dp=4,sp=1,mbs=2", "cp=2,dp=4,mbs=2,zero=3", "tp=2,cp=2,dp=2,sp=1,mbs=1,zero=2"),
    *("dp=8,mbs=4,zero=3,recompute=full", "tp=2,dp=4,sp=1,mbs=2,recompute=selective", "dp=1,mbs=4"),
    *(
        "dp=1,mbs=4,zero=2",
        "dp=1,mbs=4,zero=3",
        "dp=8,mbs=1,zero=1,offload=optimizer",
        "dp=8,zero=3,offload=parameters",
    ),
]
PIPELINES = [
    *("pp=2,dp=4,mbs=1", "pp=2,dp=4,mbs=1,zero=1", "pp=2,dp=4,mbs=1,zero=3", "pp=2,dp=4,mbs=1,schedule=gpipe"),
    *("pp=4,dp=2,mbs=1", "pp=4,dp=2,mbs=1,recompute=full", "pp=4,dp=2,mbs=2,zero=2"),
    *("pp=2,dp=4,mbs=1,schedule=zb", "pp=4,dp=2,mbs=1,schedule=zb", "pp=2,dp=4,schedule=interleaved,vpp=2"),
    *("pp=2,dp=4,mbs=1,schedule=zb,vpp=2", "pp=2,tp=2,dp=2,sp=1,mbs=1", "pp=2,tp=2,dp=2,mbs=1"),
]
SEQ_LEN = 128


def architecture_of(model):
    """Return the sizes of a decoder as `plan` reads them from a config.json."""
    routed = model.num_local_experts > 0
    return Architecture(
        vocab_size=model.vocab_size, hidden_size=model.hidden_size, intermediate_size=model.intermediate_size,
        num_hidden_layers=model.num_hidden_layers, num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.num_key_value_heads, head_dim=model.head_dim, tied=model.tie_word_embeddings,
        experts=model.num_local_experts, experts_per_token=routed * model.num_experts_per_tok,
        expert_size=routed * model.intermediate_size,
    )  # fmt: skip


def planned(model, text, precision, micro_batches=2):
    """Return the bytes, by term, that `plan` says of the fullest rank."""
    layout = Layout.parse(text)
    given = Setting(
        architecture=architecture_of(model),
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8), gpus=layout.world_size,
        global_batch=layout.dp * layout.mbs * micro_batches, seq_len=SEQ_LEN, precision=precision,
    )  # fmt: skip
    return price_layouts(given, Grid.of([layout])).terms(0)


def held(model, text, precision, micro_batches=2):
    """Return the same of `train`'s planner."""
    layout = Layout.parse(text)
    workload = describe_workload(
        model, seq_len=SEQ_LEN, micro_batch=layout.mbs, layout=layout, autocast=AUTOCAST[precision]
    )
    return peak(held_by(workload, layout, micro_batches))


def saved_bytes(model, micro_batch, precision):
    """Return what autograd keeps of a real forward besides parameters and tables, each storage once."""
    module = in_float8(Decoder(model), precision)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    tokens = torch.randint(0, model.vocab_size, (micro_batch, SEQ_LEN + 1))
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = tensor  # which lives, so that no other takes its place
        return tensor

    half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision != "fp32")
    with saved_tensors_hooks(keep, lambda tensor: tensor), half:
        loss = module(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("name", MODELS)
def test_both_planners_say_what_autograd_keeps_of_a_real_forward(name, precision):
    model = MODELS[name]
    layout = Layout(mbs=4)
    workload = describe_workload(model, seq_len=SEQ_LEN, micro_batch=4, autocast=AUTOCAST[precision])
    tied_peak = planned(model, "mbs=4", precision)  # at the loss, with all that forward kept

    saved = saved_bytes(model, 4, precision)

    assert kept_activation_bytes(workload, layout) == pytest.approx(saved, rel=0.01)
    assert tied_peak["activations_bytes"] == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "experts"])
def test_train_says_what_a_forward_in_fp8_keeps(name):
    pytest.importorskip("torchao")
    model, precision = MODELS[name], "fp8-emulated"
    workload = describe_workload(model, seq_len=SEQ_LEN, micro_batch=4, autocast=precision)

    saved = saved_bytes(model, 4, precision)

    assert kept_activation_bytes(workload, Layout(mbs=4)) == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("text", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_plan_and_train_say_the_same_peak_of_our_own_engine(name, text, precision):
    ours, trained = planned(MODELS[name], text, precision), held(MODELS[name], text, precision)

    assert ours["allocated_bytes"] == pytest.approx(trained.allocated, rel=0.02)


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("layers", [8, 7])
@pytest.mark.parametrize("text", PIPELINES)
def test_of_pipelines_they_say_the_same_too_since_both_cut_stages_as_the_engine_does(text, layers, precision):
    model = ModelConfig(num_hidden_layers=layers, num_key_value_heads=2)

    ours, trained = planned(model, text, precision, 8), held(model, text, precision, 8)

    assert ours["allocated_bytes"] == pytest.approx(trained.allocated, rel=0.02)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (ModelConfig(num_hidden_layers=12, vocab_size=2048, hidden_size=256), "pp=8,dp=1,mbs=1"),  # no layer
        (ModelConfig(num_hidden_layers=8), "pp=8,dp=4,mbs=1,zero=2"),  # one, as many as embeddings
        (ModelConfig(num_hidden_layers=15), "pp=4,dp=2,mbs=1,schedule=zb"),  # the last but one is the fullest
        (ModelConfig(num_hidden_layers=8, num_local_experts=4), "pp=2,dp=4,mbs=1,schedule=gpipe,recompute=selective"),
    ],
)
def test_they_say_the_same_where_the_first_stage_is_short_or_another_is_the_fullest(model, text):
    ours, trained = planned(model, text, "fp32", 16), held(model, text, "fp32", 16)

    assert ours["allocated_bytes"] == pytest.approx(trained.allocated, rel=0.02)


def drawn(seed):
    """Return a pipeline with its model, precision and micro-batches, drawn at random among the legal ones."""
    rng = Random(seed)
    while True:
        tp, cp, pp, dp = (rng.choice(s) for s in ((1, 1, 2), (1, 1, 2), (2, 2, 4, 4, 8), (1, 2, 4)))
        schedule = rng.choice(("1f1b", "gpipe", "interleaved", "interleaved", "zb", "zb"))
        vpp = rng.choice({"interleaved": (2, 2, 3, 4), "zb": (1, 2)}.get(schedule, (1,)))
        model = ModelConfig(
            num_hidden_layers=rng.choice((8, 12, 15, 16, 17, 24)), num_key_value_heads=2,
            vocab_size=rng.choice((256, 2048)), hidden_size=rng.choice((128, 256)),
            num_local_experts=rng.choice((0, 0, 4)),
        )  # fmt: skip
        text = (
            f"tp={tp},cp={cp},pp={pp},dp={dp},mbs={rng.choice((1, 2))},zero={rng.choice((0, 0, 1, 2, 3))},"
            f"recompute={rng.choice(('none', 'none', 'selective', 'full'))},sp={int(tp > 1 and rng.random() < 0.5)},"
            f"schedule={schedule},vpp={vpp}"
        )
        micro, precision = pp * rng.choice((1, 2, 4)), rng.choice(("fp32", "bf16"))
        try:
            layout = Layout.parse(text)
        except InputError:
            continue
        batch = dp * layout.mbs * micro
        if not illegal(layout, model, global_batch=batch, seq_len=SEQ_LEN) and not unrunnable(layout):
            return text, model, precision, micro


@pytest.mark.parametrize("seed", range(48))
def test_they_say_the_same_of_pipelines_drawn_at_random(seed):
    text, model, precision, micro = drawn(seed)

    ours, trained = planned(model, text, precision, micro), held(model, text, precision, micro)

    assert ours["allocated_bytes"] == pytest.approx(trained.allocated, rel=0.01), text


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "rounds"), [(15, 4, 3, 2), (17, 4, 2, 4), (11, 2, 4, 1), (23, 8, 2, 2), (9, 2, 2, 3)]
)
def test_what_unequal_virtual_stages_have_in_flight_is_what_their_order_says(layers, pp, vpp, rounds):
    stages = np.sort(np.array(even_stages(layers, pp * vpp), float))  # the last ones longer
    grid = Grid.of([Layout(pp=pp, vpp=vpp, schedule="interleaved")] * pp)
    places = np.arange(float(pp))
    chunks = rank_chunks(stages, pp, folded=False)

    found = unequal_chunks(grid, places, chunks, float(rounds))
    rows = peak_in_flight(schedule("interleaved", pp, vpp, rounds * pp), stages)

    assert found.most * chunks.sum(axis=0) == pytest.approx(rows)


@pytest.mark.parametrize(("layers", "pp"), [(17, 4), (9, 4), (13, 2)])
def test_what_the_halves_of_a_v_have_in_flight_is_what_its_order_says(layers, pp):
    stages = np.sort(np.array(even_stages(layers, 2 * pp), float))
    grid = Grid.of([Layout(pp=pp, vpp=2, schedule="zb")] * pp)
    chunks = rank_chunks(stages, pp, folded=True)
    own = unequal_chunks(grid, np.arange(float(pp)), chunks, 3.0)
    moments = kept_at_once(grid, np.arange(float(pp)), np.full(pp, 4.0 * pp), own)
    waiting = 0.25  # of a layer, between its halves
    peaks = np.max([(one.layers + waiting * one.waiting) * chunks.sum(axis=0) for one in moments], axis=0)

    rows = peak_in_flight(schedule("zb", pp, 2, 4 * pp), stages, lambda stage: waiting * stages[stage])

    assert peaks == pytest.approx(rows)


def test_a_stage_that_has_the_embedding_alone_holds_no_logits():
    model = ModelConfig(num_hidden_layers=12, vocab_size=2048, hidden_size=256)

    assert held(model, "pp=8,mbs=1", "fp32", 8).allocated < held(model, "mbs=1", "fp32", 8).allocated


def test_autocast_keeps_more_than_half_of_what_single_precision_does():
    single, half = (planned(MODELS["default sizes"], "dp=8,mbs=2", p)["activations_bytes"] for p in AUTOCAST)

    assert 0.6 * single < half < single


@pytest.mark.parametrize("tp", [1, 2])
def test_the_loss_has_two_gradients_of_the_logits_beside_what_it_kept(tp):
    rows, vocabulary = 32, 512
    workload = describe_workload(
        ModelConfig(vocab_size=tp * vocabulary), seq_len=rows, micro_batch=1, layout=Layout(tp=tp)
    )
    loss = workload.layers[-1].operators[-1]
    logits, kept = torch.randn(rows, vocabulary, requires_grad=True), {}

    def keep(tensor):
        if tensor.numel() == logits.numel():
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        targets = torch.randint(0, vocabulary, (rows,))
        if tp == 1:
            torch.nn.functional.cross_entropy(logits, targets, reduction="sum").backward()
        else:
            vocabulary_cross_entropy(logits, targets, 0, torch.clone, torch.clone).backward()

    assert loss.saved_bytes == sum(tensor.nbytes for tensor in kept.values())
    assert held(ModelConfig(vocab_size=512), "mbs=4", "fp32").logits == LOGIT_GRADIENT_BYTES * 4 * SEQ_LEN * 512
