"""Ports of Ethernet by what TCP carries over them: a rate just there tells of a slower port on the way."""

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
