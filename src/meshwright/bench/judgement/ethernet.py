"""Rates that tell what held TCP back: what it carries over a port of Ethernet, and clouds' limits of a single flow."""

# Gb/s of a port, and what TCP carries of it: payload over bytes on the wire (18 of the frame, 20 of gap and preamble),
# with time stamps, which Linux sets, in packets of 1,500 and of 9,000 bytes
_PORTS = (1.0, 2.5, 5.0, 10.0, 25.0, 40.0, 50.0, 100.0, 200.0, 400.0)
_PAYLOAD = {1500: 1448 / 1538, 9000: 8948 / 9038}
_NEAR = 0.001  # a wider one would take chance for a port: there are twenty such rates


def port_of_goodput(rate_bytes_per_s: float, link_bytes_per_s: float) -> str:
    """Return which port slower than the link TCP would fill at a rate, in words, "" where it would fill none."""
    for port in _PORTS:
        for packet, share in _PAYLOAD.items():
            filled = port * 1e9 / 8
            if filled < link_bytes_per_s and abs(rate_bytes_per_s / (filled * share) - 1) <= _NEAR:
                return (
                    f"it is what TCP carries on {port:g} Gb/s Ethernet ({100 * share:.1f} % in packets of {packet:,} "
                    f"bytes): a port on the way that runs at {port:g} Gb/s (ethtool: Speed), or a limit at that rate"
                )
    return ""


# Gb/s that Amazon allows a single flow between two instances, and where (EC2 user guide, "instance network bandwidth")
_FLOWS = {5.0: "outside of a cluster placement group", 10.0: "within a cluster placement group"}
_OF_FLOW = (0.93, 1.005)  # of that, what TCP carries once headers are off


def limit_of_flow(rate_bytes_per_s: float, link_bytes_per_s: float) -> str:
    """Return which limit of a single flow on Amazon EC2 a rate is at, in words, "" where it is at none."""
    for limit, where in _FLOWS.items():
        own = limit * 1e9 / 8
        if own < link_bytes_per_s and _OF_FLOW[0] * own <= rate_bytes_per_s <= _OF_FLOW[1] * own:
            return f"a single flow is held to {limit:g} Gb/s {where}, which this is"
    return ""
