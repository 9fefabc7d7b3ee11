"""Chrome traces as writers leave them: streamed in pieces of any size, with what they get wrong mended."""

import gzip
import json

import pytest

from meshwright.errors import InputError
from meshwright.traces.formats import opening
from meshwright.traces.formats.events import EventStream
from meshwright.traces.formats.opening import Source
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized


def kernel(start, length, name="gemm", **args):
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length} | (
        {"args": {"stream": 7, **args}}
    )


EVENTS = [kernel(10 * i, 5, f"gemm{i}", sizes=[{"a": i}, {"b": [i, "}, {"]}]) for i in range(40)]
HEAD = {"schemaVersion": 1, "distributedInfo": {"rank": 3}, "note": 'the key "traceEvents": [ is text here'}
TAIL = {"traceName": "x", "after": [{"a": 1}, {"b": "]}"}], "host_name": "node7"}


def names(path):
    stream = EventStream(Source(path))
    return [event.name for batch in stream.batches() for event in batch], stream.head


@pytest.mark.parametrize("piece_bytes", [1, 7, 64, 1000, 10**6])
@pytest.mark.parametrize("indent", [None, 2])
def test_pieces_of_any_size_give_the_same_events(tmp_path, monkeypatch, piece_bytes, indent):
    monkeypatch.setattr(opening, "CHUNK_BYTES", piece_bytes)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**HEAD, "traceEvents": EVENTS, **TAIL}, indent=indent))
    found, head = names(path)

    assert found == [event["name"] for event in EVENTS]
    assert (head.rank, head.host) == (3, "node7")


@pytest.mark.parametrize("piece_bytes", [50, 10**6])
@pytest.mark.parametrize("end", ["]", "", ",", "\n,\n"])
def test_an_array_need_not_be_closed(tmp_path, monkeypatch, piece_bytes, end):
    monkeypatch.setattr(opening, "CHUNK_BYTES", piece_bytes)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(EVENTS)[:-1] + end)

    assert len(names(path)[0]) == 40


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "inf", "-nan"])
def test_numbers_that_json_does_not_know_are_no_reason_to_refuse(tmp_path, number):
    path = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": [kernel(0, 5, "NaN, inf", rate=0.125), kernel(10, 5)]})
    path.write_text(text.replace("0.125", number))
    found, _ = names(path)

    assert found == ["NaN, inf", "gemm"]


@pytest.mark.parametrize(
    ("raw", "name"),
    [(b"\xff\xfe", "�"), (rb"C:\Users\me", r"C:\Users\me"), (b"a\tb", "a b"), (b"\x00", " "), (b"\\ud800", "")],
)
def test_a_name_that_is_no_json_text_is_read_as_far_as_it_goes(tmp_path, raw, name):
    path = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": [kernel(0, 5, "NAME"), kernel(10, 5)]}).encode()
    path.write_bytes(text.replace(b"NAME", raw))
    found, _ = names(path)

    assert len(found) == 2
    assert name in found[0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
def test_text_with_a_mark_of_its_encoding_is_read(tmp_path, encoding):
    path = tmp_path / "trace.json"
    text = json.dumps({"traceEvents": EVENTS})
    path.write_bytes((text if encoding == "utf-8-sig" else "\ufeff" + text).encode(encoding))

    assert len(names(path)[0]) == 40


@pytest.mark.parametrize(
    "event",
    [
        {"dur": None}, {"dur": -1}, {"dur": "x"}, {"dur": 1e300}, {"args": [1]}, {"args": "text"}, {"name": 7},
        {"ts": None}, {"pid": None}, {"tid": 1.5}, {"args": {"stream": [1], "correlation": {}, "device": "a"}},
        {"cat": 3}, {"ph": 1}, {"args": {"Collective name": 5, "dtype": 7, "Group size": "x", "Seq": "y"}},
    ],
    ids=str,
)  # fmt: skip
def test_one_odd_event_is_no_reason_to_refuse_a_trace(tmp_path, event):
    path = tmp_path / "rank0.json"
    path.write_text(
        json.dumps({"traceEvents": [kernel(0, 900, correlation=1), kernel(900, 100) | event, "text", None]})
    )

    assert summarized(read_traces([path])).median.compute_s >= 900e-6


def test_times_that_are_texts_are_numbers(tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps([kernel("1700000000000000.0", "600"), kernel("1700000000001000.0", 600.0)]))

    assert summarized(read_traces([path])).median.compute_s == pytest.approx(1200e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_that_is_cut_off_is_refused_at_whatever_byte(tmp_path, packed):
    text = json.dumps({"traceEvents": [kernel(10 * i, 5) for i in range(5)], "traceName": "x"}).encode()
    whole = gzip.compress(text) if packed else text
    path = tmp_path / ("rank0.json.gz" if packed else "rank0.json")
    for size in range(1, len(whole) - (8 if packed else 0), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="cut off|no list of traceEvents|no operator"):
            read_traces([path])
