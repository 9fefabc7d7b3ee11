import io

from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.emulation.stream import _Lines

PIECES = st.lists(st.binary(min_size=1, max_size=20), max_size=20)


@given(PIECES)
def test_lines_are_whole_and_prefixed_however_the_bytes_arrive(pieces):
    sink = io.BytesIO()
    lines = _Lines("node0", sink)

    for piece in [*pieces, b""]:
        lines.write(piece)

    text = b"".join(pieces)
    expected = text.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert sink.getvalue() == b"".join(b"[node0] " + line + b"\n" for line in expected)
