import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.emulation.faults import Fault, parse_fault
from meshwright.cluster.emulation.loss import drop_filter
from meshwright.errors import InputError

TARGETS = st.sampled_from(["node0", "node12", "leaf3", "rank7"])
POSITIVE = st.floats(min_value=1e-3, max_value=1e12)
FAULTS = st.one_of(
    st.builds(Fault, st.sampled_from(["cut", "restore", "pause", "resume", "kill"]), TARGETS),
    st.builds(lambda target, rate: Fault("slow", target, rate_bytes_per_s=rate), TARGETS, POSITIVE),
    st.builds(lambda target, share: Fault("lose", target, share=share), TARGETS, st.floats(0, 1)),
    st.builds(lambda target, delay: Fault("delay", target, delay_s=delay), TARGETS, st.floats(0, 1e3)),
)


@given(FAULTS)
def test_a_fault_prints_as_what_it_is_parsed_from(fault):
    assert parse_fault(str(fault)) == fault


def test_values_are_read_with_their_units():
    assert parse_fault("slow node1 100Mbps").rate_bytes_per_s == 12.5e6
    assert parse_fault("lose node1 5%").share == 0.05
    assert parse_fault("delay node1 2ms").delay_s == 0.002


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "known: cut"),
        ("cuts node1", "did you mean cut"),
        ("cut", "`cut node1`"),
        ("cut node1 now", "`cut node1`"),
        ("slow node1", "`slow node1 100Mbps`"),
        ("slow node1 100", "a rate with its unit"),
        ("lose node1 150%", "5% or 0.05"),
        ("lose node1 half", "5% or 0.05"),
        ("delay node1 -1ms", "negative"),
    ],
)
def test_a_wrong_fault_says_what_was_expected(text, hint):
    with pytest.raises(InputError, match=hint):
        parse_fault(text)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_filter_drops_the_share_of_random_numbers(share):
    """Interpret the four instructions for evenly spaced random numbers and count the drops."""
    steps = list(struct.iter_unpack("=HBBI", drop_filter(share)))

    def verdict(number):
        place, register = 0, 0
        while True:
            operation, when, otherwise, value = steps[place]
            place += 1
            if operation == 0x20:  # ld random
                register = number
            elif operation == 0x35:  # jge
                place += when if register >= value else otherwise
            else:
                assert operation == 0x06  # ret
                return value

    count = 1000
    dropped = sum(verdict(i * (2**32 // count)) == 2 for i in range(count))

    assert dropped == pytest.approx(count * share, abs=1)
