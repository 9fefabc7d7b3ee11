"""Files, archives and folders of traces: which are read, in which order, and what is refused while it unpacks."""

import contextlib
import gzip
import json
import sqlite3
import zipfile

import pytest

from meshwright.errors import InputError
from meshwright.files import natural
from meshwright.traces.formats import opening
from meshwright.traces.formats.opening import pieces, trace_sources
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


def notes_of(path):
    return [note for cycles in read_traces([path]) for trace in cycles for note in trace.notes]


OTHER_JSON = {
    "config.json": '{"lr": 0.1}',
    "sizes.json": "[[1, 2], [3, 4]]",
    "count.json": "17",
    "empty_list.json": "[]",
    "kernels.json": '[{"Name": "gemm", "Time (%)": 12.5}]',
    "wandb-summary.json": '{"loss": NaN, "traceEvents": null}',
    "metrics.json": '{"step": 1}\n{"step": 2}\n',
    "packed.json.gz": gzip.compress(b'{"a": 1}'),
    "notes.txt.gz": gzip.compress(b"no JSON"),
}


@pytest.mark.parametrize("name", OTHER_JSON)
def test_a_file_of_a_folder_that_is_no_trace_is_set_aside_and_the_reader_is_told(tmp_path, name):
    (tmp_path / "rank0.json").write_text(trace(0))
    text = OTHER_JSON[name]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    said = [] if name == "notes.txt.gz" else [f"1 file beside the traces is set aside: sub/{name}"]
    assert ranks_of(tmp_path) == [0]
    assert notes_of(tmp_path) == said


@pytest.mark.parametrize("as_folder", [True, False], ids=["folder", "every file"])
def test_the_page_of_an_earlier_report_lies_beside_its_traces_and_is_none(tmp_path, as_folder):
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_text(trace(rank))
    for ending in opening.OWN_PAGES:
        (tmp_path / f"rank0{ending}").write_text("<!doctype html>" if ending.endswith("html") else "{}")

    assert ranks_of(*([tmp_path] if as_folder else sorted(tmp_path.iterdir()))) == [0, 1]


@pytest.mark.parametrize("name", ["config.json", "sizes.json", "packed.json.gz"])
def test_a_file_that_is_no_trace_is_refused_where_it_is_named(tmp_path, name):
    text = OTHER_JSON[name]
    (tmp_path / "rank0.json").write_text(trace(0))
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(InputError, match=f"{name}: (no list of traceEvents|a list, no operator)"):
        read_traces([tmp_path / "rank0.json", tmp_path / name])


@pytest.mark.parametrize(
    "text", ["", '{"traceEvents": [', '{"schemaVersion": 1, "deviceProp', '{"traceEvents": []}', "no JSON at all"]
)
def test_a_trace_that_is_damaged_is_not_set_aside(tmp_path, text):
    (tmp_path / "rank0.json").write_text(trace(0))
    (tmp_path / "rank1.json").write_text(text)

    with pytest.raises(InputError, match="rank1.json"):
        read_traces([tmp_path])


def test_members_of_an_archive_and_databases_that_are_no_traces_are_set_aside(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("rank0.json", trace(0))
        archive.writestr("config.json", "{}")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme.txt", "no trace")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.sqlite")) as base:
        base.execute("CREATE TABLE metrics (step INTEGER)")

    assert ranks_of(tmp_path) == [0]
    assert notes_of(tmp_path) == ["3 files beside the traces are set aside: a.zip/config.json, b.zip, runs.sqlite"]


def npu_rank(folder, rank, files):
    """Write what torch_npu writes of one rank: a trace, what else is told, and the same trace as msprof has it."""
    output, raw = folder / "ASCEND_PROFILER_OUTPUT", folder / "PROF_1" / "mindstudio_profiler_output"
    for one in (output, raw):
        one.mkdir(parents=True)
    names = {"Python": 1, "Ascend Hardware": 2}
    events = [
        *({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for name, pid in names.items()),
        {"ph": "X", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": "100.0", "dur": 900},
        {"ph": "X", "name": "MatMul", "pid": 2, "tid": 2, "ts": "100.5", "dur": 300 + rank,
         "args": {"Task Type": "AI_CORE"}},
    ]  # fmt: skip
    (output / "trace_view.json").write_text(json.dumps(events))
    (raw / "msprof_20250101.json").write_text(json.dumps(events))
    (output / "communication.json").write_text('{"step1": {}}')
    for name, text in files(rank).items():
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    "files",
    [
        lambda rank: {f"profiler_info_{rank}.json": "{}", "profiler_metadata.json": "{}"},
        lambda rank: {"profiler_metadata.json": json.dumps({"distributedInfo": {"rank": rank}})},
    ],
)
def test_the_files_beside_a_trace_of_an_npu_say_its_rank(tmp_path, files):
    for place, rank in enumerate((12, 3)):
        npu_rank(tmp_path / f"node_{place}_ascend_pt", rank, files)
    found = read_traces([tmp_path])

    assert [(cycles[0].rank, len(cycles)) for cycles in found] == [(3, 1), (12, 1)]
    assert [round(float(cycles[0].compute[0, 1]) * 1e6) for cycles in found] == [303, 312]
    assert any("beside the traces are set aside" in note for note in notes_of(tmp_path))
    assert [cycles[0].rank for cycles in read_traces(sorted(tmp_path.glob("*/*/trace_view.json")))] == [3, 12]


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


def test_what_jax_writes_for_another_viewer_beside_a_trace_is_no_second_host(tmp_path):
    (tmp_path / "perfetto_trace.json.gz").write_bytes(gzip.compress(trace().encode()))
    assert len(read_traces([tmp_path])) == 1
    (tmp_path / "node0.trace.json.gz").write_bytes(gzip.compress(trace().encode()))

    assert [trace.name for cycles in read_traces([tmp_path]) for trace in cycles] == ["node0.trace.json.gz"]


def test_profiles_of_several_times_in_a_log_directory_are_not_joined(tmp_path):
    for when, host in (("2026_01_02", "a"), ("2026_01_03", "b"), ("2026_01_04", "a")):
        session = tmp_path / "plugins" / "profile" / when
        session.mkdir(parents=True)
        (session / f"{host}.trace.json").write_text(trace())

    with pytest.raises(InputError, match="2 profiles in it; expected one of them: .*2026_01_04"):
        read_traces([tmp_path])
    (tmp_path / "plugins" / "profile" / "2026_01_04" / "a.trace.json").unlink()
    assert len(read_traces([tmp_path])) == 2


def test_a_trace_that_lies_beside_its_packed_copy_is_not_two_ranks(tmp_path):
    (tmp_path / "a.json").write_text(trace())
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(trace().encode()))

    with pytest.raises(InputError, match=r"a.json and .*a.json.gz: one trace, packed and not"):
        read_traces([tmp_path])


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
