"""Files, archives and folders of traces: which are read, in which order, and what is refused while it unpacks."""

import gzip
import json
import zipfile

import pytest

from meshwright.errors import InputError
from meshwright.traces import opening
from meshwright.traces.opening import natural, pieces, trace_sources
from meshwright.traces.reading import read_traces


def trace(rank=None, step=0, length=500):
    info = {} if rank is None else {"distributedInfo": {"rank": rank}}
    events = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
         "ts": 1000 * step, "dur": 1000},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1000 * step, "dur": length},
    ]  # fmt: skip
    return json.dumps({**info, "traceEvents": events})


def ranks_of(*paths):
    return [cycles[0].rank for cycles in read_traces(paths)]


def test_names_are_in_natural_order():
    assert sorted(["rank10", "rank2", "rank1b", "rank1"], key=natural) == ["rank1", "rank1b", "rank2", "rank10"]


def test_what_the_handler_of_tensorboard_wrote_is_all_that_is_read_of_a_folder(tmp_path):
    (tmp_path / "node0_17.170.pt.trace.json").write_text(trace(0))
    (tmp_path / "node0_18.171.pt.trace.json.gz").write_bytes(gzip.compress(trace(1).encode()))
    (tmp_path / "config.json").write_text("{}")

    assert ranks_of(tmp_path) == [0, 1]


def test_an_archive_holds_a_file_a_rank(tmp_path):
    with zipfile.ZipFile(tmp_path / "traces.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/rank1.json", trace())
        archive.writestr("run/rank0.json.gz", gzip.compress(trace().encode()))
        archive.writestr("readme.txt", "no trace")

    assert ranks_of(tmp_path / "traces.zip") == [0, 1]


@pytest.mark.parametrize("name", ["bomb.json.gz", "bomb.zip"])
def test_what_grows_too_much_is_refused_while_it_unpacks(tmp_path, monkeypatch, name):
    monkeypatch.setattr(opening, "CHUNK_BYTES", 10_000)
    text = b'{"traceEvents": [' + b" " * 10**7
    path = tmp_path / name
    if name.endswith("gz"):
        path.write_bytes(gzip.compress(text))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rank0.json", text)

    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        read_traces([path])

    (source,) = trace_sources([path])
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        next(pieces(source))  # before anything of it is parsed


def test_a_packed_file_that_is_cut_off_is_not_called_too_large(tmp_path):
    path = tmp_path / "rank0.json.gz"
    whole = gzip.compress(b"".join(b'{"traceEvents": [%d]}' % (n * n) for n in range(20_000)))
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * 4)  # says that it unpacks to 4 GiB

    with pytest.raises(InputError) as caught:
        read_traces([path])
    assert "unpacks to more" not in str(caught.value)


def test_a_packed_file_of_more_than_the_most_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "MOST_BYTES", 1000)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(trace(0).encode() + b" " * 2000))

    with pytest.raises(InputError, match="refused"):
        read_traces([path])


def test_the_order_of_the_arguments_says_nothing_of_the_ranks(tmp_path):
    paths = [tmp_path / f"worker{rank}.json" for rank in (10, 9, 2)]
    for path in paths:
        path.write_text(trace())

    found = {cycles[0].rank: cycles[0].source for cycles in read_traces(paths)}
    assert found == {2: str(paths[2]), 9: str(paths[1]), 10: str(paths[0])}


def test_files_whose_names_say_no_rank_are_numbered_in_their_order_and_the_reader_is_told(tmp_path):
    for name in ("b.json", "a.json"):
        (tmp_path / name).write_text(trace())
    found = read_traces([tmp_path / "b.json", tmp_path / "a.json"])

    assert [cycles[0].source for cycles in found] == [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert "by the order of the names" in found[0][0].notes[0]


def test_cycles_of_one_rank_are_one_rank(tmp_path):
    for rank in (0, 1):
        for cycle, step in enumerate((20, 5)):
            (tmp_path / f"{rank}-{cycle}.json").write_text(trace(rank, step))
    found = read_traces([tmp_path])

    assert [[trace.windows[0].number for trace in cycles] for cycles in found] == [[5, 20], [5, 20]]


def _archive_of_texts(folder):
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("a.txt", "")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "no trace in it"),
        (lambda folder: (folder / "a.zip").write_bytes(b"PK\x03\x04 and no more"), "not a zip file|Bad|zip"),
        (_archive_of_texts, "no .json in this archive"),
        (lambda folder: (folder / "a.json.gz").write_bytes(b"\x1f\x8b\x08 and no more"), "a.json.gz"),
    ],
)
def test_a_folder_without_a_trace_is_refused_in_one_line(tmp_path, make, message):
    make(tmp_path)

    with pytest.raises(InputError, match=message) as caught:
        read_traces([tmp_path])
    assert "\n" not in str(caught.value)


def test_a_file_given_twice_is_refused(tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text(trace())

    with pytest.raises(InputError, match="given twice"):
        trace_sources([path, path])


def test_cycles_of_one_worker_are_one_rank_though_no_file_says_which(tmp_path):
    for worker, cycle, step in (("a_1", 1, 3), ("a_1", 2, 9), ("b_1", 1, 3), ("b_1", 2, 9)):
        (tmp_path / f"{worker}.170000000{cycle}.pt.trace.json").write_text(trace(None, step))

    assert [[one.windows[0].number for one in cycles] for cycles in read_traces([tmp_path])] == [[3, 9], [3, 9]]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank0_a.json", "rank0_b.json", "rank1_a.json", "rank1_b.json"], [0, 1]),
        (["rank10/trace.json", "rank9/trace.json", "rank3/trace.json"], [3, 9, 10]),
        (["worker5/b.json", "worker5/a.json"], [0, 1]),  # whose folder it is says nothing of the two
        (["rank7.json"], [7]),
        (["trace.json"], [0]),
    ],
)
def test_ranks_are_read_from_the_names_of_files_then_of_folders(tmp_path, names, ranks):
    for step, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(trace(None, step))

    assert ranks_of(tmp_path) == ranks


@pytest.mark.parametrize(
    ("label", "name"), [("/host:CPU", "JAX or TensorFlow"), ("CPU HIP API", "rocprof"), ("grad/dense", "Horovod")]
)
def test_the_trace_of_another_profiler_is_refused_by_name(tmp_path, label, name):
    path = tmp_path / "trace.json"
    events = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": label}},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "name": "gemm"},
    ]
    path.write_text(json.dumps({"traceEvents": events}))

    with pytest.raises(InputError, match=f"looks like a trace of {name}"):
        read_traces([path])
