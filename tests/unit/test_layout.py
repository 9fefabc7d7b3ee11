import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.layout import ORDERS, Layout, micro_batches

DEGREE = st.integers(min_value=1, max_value=48)  # all together at most 5.3 million ranks


@given(
    tp=DEGREE, pp=DEGREE, dp=DEGREE, cp=DEGREE, mbs=DEGREE, zero=st.integers(0, 3),
    offload=st.sampled_from(["none", "optimizer"]),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "zb"]),
    recompute=st.sampled_from(["none", "selective", "full"]), order=st.sampled_from(ORDERS),
)  # fmt: skip
def test_the_text_form_parses_back(**fields):
    layout = Layout(**fields)

    assert Layout.parse(str(layout)) == layout


def test_a_missing_data_parallel_degree_is_what_is_left_over():
    assert Layout.parse("tp=2,pp=2", world_size=16).dp == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tq=2", "did you mean tp"),
        ("tp", "KEY=VALUE"),
        ("tp=2,tp=2", "twice"),
        ("tp=x", "tp: expected a whole number, got 'x'"),
        ("tp=0", "whole numbers of 1"),
        ("dp=3", "3, but there are 8 ranks"),
        ("tp=3", "does not divide the 8 ranks"),
        ("sp=1", "needs tp"),
        ("zero=1,offload=parameters", "zero=2 or 3 gather them, not zero=1"),
        ("offload=disk", "'disk'"),
        ("zero=4", "4"),
        ("order=tp-tp-dp-pp", "axes"),
        ("vpp=2,pp=2,schedule=1f1b", "interleaved"),
        ("dp=8,zero=3,replicas=8", "8 copies on dp x cp = 8 ranks leave nothing to shard; take fewer, or zero=0"),
    ],
)
def test_a_bad_layout_says_what_is_wrong(text, message):
    with pytest.raises(InputError, match=message):
        Layout.parse(text, world_size=8)


def test_micro_batches_divide_the_global_batch_or_say_so():
    assert micro_batches(Layout(dp=2, mbs=4), 32) == 4
    with pytest.raises(InputError, match="not a multiple of dp x mbs"):
        micro_batches(Layout(dp=3, mbs=4), 32)
