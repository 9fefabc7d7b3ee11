"""A cable's queue lets every packet out that it has let in, whatever rate it is given meanwhile."""

import pytest

from meshwright.cluster.emulation.links import BURST_S, LARGEST_BYTES, burst_bytes


@pytest.mark.parametrize(("first", "slowed"), [(25e6, 2.5e6), (1.25e9, 1e6), (1e6, 1e3)])
def test_a_packet_that_waits_while_a_cable_is_slowed_still_gets_out(first, slowed):
    before = burst_bytes(first, 9000, 0)

    after = burst_bytes(slowed, 9000, before)

    assert after >= min(before, LARGEST_BYTES)
    assert burst_bytes(slowed / 10, 9000, after) >= min(before, LARGEST_BYTES)


def test_what_passes_unshaped_follows_the_rate_where_no_packet_is_held():
    assert burst_bytes(25e6, 9000, 0) == 25e6 * BURST_S
    assert burst_bytes(1e6, 9000, 0) == 3 * 9000
    assert burst_bytes(25e6, 9000, burst_bytes(2.5e6, 9000, 50_000)) == 25e6 * BURST_S
    assert burst_bytes(None, 9000, 50_000) == 0
    assert burst_bytes(2.5e6, 9000, burst_bytes(None, 9000, 50_000)) == 3 * 9000
