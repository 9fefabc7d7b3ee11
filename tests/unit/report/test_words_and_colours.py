"""A layout in words, and one colour for each meaning."""

import pytest

from meshwright.layout import Layout
from meshwright.report.colours import COLOURS, MEASURED, PREDICTED, SERIES, colours_of, in_order
from meshwright.report.layout_words import layout_in_words


@pytest.mark.parametrize(
    ("text", "micro_batches", "words"),
    [
        (
            "dp=2,mbs=4",
            1,
            "2 ranks: 2 data-parallel ranks, each with a copy of the model; 1 micro-batch of 4 sequences a step",
        ),
        (
            "tp=8,pp=4,dp=8,mbs=1,sp=1",
            64,
            "256 ranks: 8 data-parallel ranks, each with a copy of the model; each layer split over 8 tensor ranks, "
            "their sequences too; layers in 4 pipeline ranks, 1F1B; 64 micro-batches of 1 sequence a step",
        ),
        (
            "dp=8,mbs=1,zero=3,replicas=2,recompute=full",
            2,
            "8 ranks: 8 data-parallel ranks, weights, gradients and optimiser state sharded in 2 groups of 4, each "
            "with a whole model (ZeRO 3); layers are computed again in backward; 2 micro-batches of 1 sequence a step",
        ),
        (
            "dp=4,cp=2,mbs=1,zero=3",
            2,
            "8 ranks: 4 data-parallel ranks, weights, gradients and optimiser state sharded over 8 with the context "
            "ranks (ZeRO 3); each sequence split over 2 context ranks; 2 micro-batches of 1 sequence a step",
        ),
        (
            "tp=2,dp=8,ep=4,mbs=1",
            4,
            "16 ranks: 8 data-parallel ranks, each with a copy of the model; each layer split over 2 tensor ranks; "
            "experts spread over 4 ranks (each cut over 2 tensor ranks, held 2 times); 4 micro-batches of 1 sequence "
            "a step",
        ),
        (
            "tp=2,dp=8,ep=4,mbs=1,etp=1",
            4,
            "16 ranks: 8 data-parallel ranks, each with a copy of the model; each layer split over 2 tensor ranks; "
            "experts spread over 4 ranks (each whole, held 4 times); 4 micro-batches of 1 sequence a step",
        ),
        ("dp=1,mbs=1", 8, "1 rank: 8 micro-batches of 1 sequence a step"),
        ("dp=4,mbs=2,mode=async", 1, "4 asynchronous workers, micro-batches of 2 sequences"),
    ],
)
def test_a_layout_is_told_in_words(text, micro_batches, words):
    assert layout_in_words(Layout.parse(text), micro_batches) == words


def test_no_two_meanings_of_one_figure_share_a_colour():
    shared = {}
    for name, colour in COLOURS.items():
        shared.setdefault(colour, []).append(name)

    assert [names for names in shared.values() if len(names) > 1] == [
        ["backward", "backward_input"],
        ["send", "send_activation"],
        ["recv", "recv_activation"],
    ]
    assert not {PREDICTED, MEASURED, *SERIES} & set(COLOURS.values())


def test_unknown_names_have_colours_of_their_own_and_come_last():
    names = ["push", "optimizer", "forward", "pull"]

    assert in_order(names) == ["forward", "optimizer", "pull", "push"]
    assert len(set(colours_of(names).values())) == 4
