"""Figures out of their bounds and references to nothing are refused where a file becomes a noun."""

import ctypes
import json
import os
import signal
import time

import msgspec
import pytest

from meshwright import cli
from meshwright.bench.reading import parse_tables
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.graph import Cluster, Device, Link, NodeGroup, consistent
from meshwright.cluster.wire import read_cluster
from meshwright.collectives.schedules.schedule import Schedule
from meshwright.collectives.sources import read_schedule
from meshwright.errors import InputError, one_line
from meshwright.files import convert, parse_json, parse_toml, read_bytes
from meshwright.hardware import load_catalogue
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.layout import Layout
from meshwright.postmortem.inputs import examine_files
from meshwright.quantities import checked
from meshwright.simulate.native import _heard
from meshwright.timeline import parse_chrome_trace
from meshwright.train.checkpoint.llama import read_config
from meshwright.train.data.corpus import find_files, split_files, vocabulary_size
from meshwright.train.job.config import load_job
from meshwright.train.run.run_folder import RunFolder
from meshwright.units import parse_bytes, parse_count, parse_rate, parse_time

GROUP = {
    "type": "", "count": 2, "gpus": 8, "gpu": {"id": "GPU", "kind": "gpu", "peak_flops_per_s": {"bf16": 9.89e14}},
    "gpu_link": "NV18", "gpu_bandwidth_bytes_per_s": 4.5e11, "peer_bandwidth_bytes_per_s": 4.5e11, "nics": 8,
    "nic_bandwidth_bytes_per_s": 5e10, "nic_latency_s": 2e-6, "gpu_latency_s": 1e-6,
}  # fmt: skip


def cluster_file(tmp_path, **changes):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"name": "c", "groups": [GROUP | changes]}))
    return path


def test_a_sound_cluster_is_read(tmp_path):
    assert read_cluster(cluster_file(tmp_path)).num_gpus == 16


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpu_bandwidth_bytes_per_s", -4.5e11),
        ("gpu_bandwidth_bytes_per_s", 0),
        ("peer_bandwidth_bytes_per_s", 1e30),
        ("nic_bandwidth_bytes_per_s", -1.0),
        ("nic_latency_s", -2e-6),
        ("count", 10**18),
        ("count", 2**31),
        ("gpus", -8),
        ("mesh", [[0, 9, 1e9]]),
        ("mesh", [[1, 1, 1e9]]),
        ("gpu", {"id": "GPU", "kind": "gpu", "peak_flops_per_s": {"bf16": -9.89e14}}),
        ("gpu", {"id": "GPU", "kind": "gpu", "memory_bytes": -80}),
    ],
)
def test_a_cluster_with_an_impossible_figure_is_refused(tmp_path, key, value):
    with pytest.raises(InputError, match=key.split("_")[0]):
        read_cluster(cluster_file(tmp_path, **{key: value}))


@pytest.mark.parametrize("number", ["1e999", "NaN", "Infinity", "-1e999"])
def test_a_cluster_with_a_figure_that_is_not_finite_is_refused(tmp_path, number):
    path = cluster_file(tmp_path, gpu_latency_s=12345)
    path.write_text(path.read_text().replace("12345", number))

    with pytest.raises(InputError, match="number"):
        read_cluster(path)


def test_as_many_gpus_as_two_counts_multiply_to_are_too_many():
    group = msgspec.convert(GROUP | {"count": 2**20, "gpus": 2**10}, NodeGroup)

    with pytest.raises(ValueError, match="expected at most"):
        Cluster(name="c", groups=(group,))


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"a": "GPU0", "b": "GPU9", "kind": "NV12", "bandwidth_GBps": 300}, "no device has the id 'GPU9'"),
        ({"a": "GPU0", "b": "GPU0", "kind": "NV12", "bandwidth_GBps": 300}, "to itself"),
        ({"a": "GPU0", "b": "GPU1", "kind": "NV12", "bandwidth_GBps": -300}, "bandwidth_GBps: expected a finite"),
    ],
)
def test_links_of_our_own_form_lead_to_devices(tmp_path, link, said):
    path = tmp_path / "topo.json"
    devices = [{"id": name, "kind": "gpu"} for name in ("GPU0", "GPU1")]
    path.write_text(json.dumps({"devices": devices, "links": [link]}))

    with pytest.raises(InputError, match=said):
        read_cluster(path)


def test_two_devices_of_one_id_are_refused():
    with pytest.raises(ValueError, match="two have the id 'GPU0'"):
        consistent(Cluster(name="c", devices=(Device(id="GPU0", kind="gpu"),) * 2))


def test_a_noun_that_a_program_made_is_held_to_the_same_bounds():
    with pytest.raises(ValueError, match="latency_s"):
        checked(Link(a="a", b="b", kind="x", bandwidth_bytes_per_s=1e9, latency_s=-1.0))


@pytest.mark.parametrize("parse", [parse_bytes, parse_rate, parse_time, parse_count])
@pytest.mark.parametrize("number", ["1e400", "9" * 5000, "1e30"])
def test_endless_figures_have_no_unit_that_helps(parse, number):
    unit = {parse_bytes: "GB", parse_rate: "Gbps", parse_time: "s", parse_count: ""}[parse]

    with pytest.raises(InputError, match="expected at most") as caught:
        parse(number + unit)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": {"b": [1, 1e999]}}', r"a\.b\[1\]: inf is no finite number"),
        ('{"a": ' + "9" * 30 + "}", "a: a number of 100 bits"),
        ('{"a": ' + "9" * 5000 + "}", "more than 4,300 digits"),
        ('{"a": "\\ud800"}', "a: character 1 is half of a pair"),
        ('{"\\ud800": {}}', "half of a pair"),
        ("[" * 200 + "]" * 200, "nested deeper than 100 levels"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_no_noun_can_hold_names_the_place(text, said):
    with pytest.raises(InputError, match=said):
        parse_json(text, where="f.json")


@pytest.mark.parametrize("text", ["a = nan", "a = inf", "[b]\na = [1, -inf]", "a = " + "9" * 30, "a = " + "9" * 5000])
def test_toml_that_no_noun_can_hold_is_refused(text):
    with pytest.raises(InputError, match=r"^f\.toml: "):
        parse_toml(text, where="f.toml")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("launch.timeout_s", "inf"), ("launch.timeout_s", "nan"), ("launch.timeout_s", "1e300"),
        ("train.seed", "-1"), ("train.seed", "9223372036854775808"), ("data.pattern", '""'),
        ("launch.ranks", "18446744073709551615"), ("optimizer.learning_rate", "nan"), ("train.steps", "1" + "0" * 40),
        ("model.num_hidden_layers", "9223372036854775807"), ("model.hidden_size", "-128"),
    ],
)  # fmt: skip
def test_a_job_with_an_impossible_figure_is_refused(tmp_path, key, value):
    section, name = key.split(".")
    (tmp_path / "job.toml").write_text(f"[{section}]\n{name} = {value}\n")

    with pytest.raises(InputError, match=name):
        load_job(tmp_path / "job.toml", {})


@pytest.mark.parametrize("text", ["tp=4294967296", "dp=" + "9" * 19, "tp=4096,pp=4096,dp=4096"])
def test_a_layout_of_more_ranks_than_there_can_be_is_refused(text):
    with pytest.raises(InputError, match="at most"):
        Layout.parse(text)


def chrome(**changes):
    event = {"ph": "X", "name": "forward", "cat": "compute", "pid": 0, "ts": 0, "dur": 5, "args": {"step": 0}}
    return {"traceEvents": [event | changes], "otherData": {"source": "measured"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"cat": []}, {"cat": {}}, {"dur": -5}, {"ts": 10**400}, {"ts": float("inf")}, {"pid": -1}, {"pid": 10**30},
        {"args": {"step": float("inf")}}, {"args": {"step": 0, "bytes": -1}}, {"name": 3},
    ],
)  # fmt: skip
def test_a_timeline_with_an_impossible_span_is_refused(changes):
    assert parse_chrome_trace(chrome()).spans[0].end_s == pytest.approx(5e-6)
    with pytest.raises(ValueError, match="not a timeline of Meshwright"):
        parse_chrome_trace(chrome(**changes))


@pytest.mark.parametrize("line", ["0: c0:" + "9" * 5000 + ">1", "0: c" + "9" * 5000 + ":0>1", "9" * 5000 + ": c0:0>1"])
def test_a_schedule_with_numbers_of_thousands_of_digits_is_refused(line):
    with pytest.raises(InputError, match="expected"):
        Schedule.parse(f"all_reduce ring ranks=2 chunks=2\n{line}\n")


def test_a_schedule_of_blank_lines_is_looked_at_line_by_line(tmp_path):
    path = tmp_path / "blank.txt"
    path.write_bytes(b"\n" * 70 * 2**20)

    with pytest.raises(InputError, match="larger than"):
        read_schedule(path)


def test_no_pipe_is_waited_for_and_no_device_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nothing")

    for name, said in {"pipe": "pipe", "zero": "device", "loop": "symbolic links", "gone": "no such file"}.items():
        with pytest.raises(InputError, match=said):
            read_bytes(tmp_path / name)


def test_a_name_that_is_not_utf_8_is_a_fine_name(tmp_path, capsys):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.json")
    with open(path, "w") as file:
        json.dump({"name": "c", "groups": [GROUP]}, file)

    assert cli.run_command(["topo", "--from", path]) == 0
    capsys.readouterr()
    with open(path, "w") as file:
        file.write("{")
    assert cli.run_command(["topo", "--from", path]) == 2
    assert "caf\\udce9.json" in capsys.readouterr().err


def test_a_message_is_one_line_that_prints():
    assert one_line("a\n  b") == "a b"
    assert len(one_line("x: '" + "9" * 5000 + "'")) < 200
    assert one_line("\ud800") == "\\ud800"


def test_bounds_are_said_in_words():
    with pytest.raises(InputError, match=r"c: bandwidth_bytes_per_s: expected a finite number, 0 or more"):
        convert({"a": "a", "b": "b", "kind": "x", "bandwidth_bytes_per_s": -1.0}, Link, where="c")


def test_ctrl_c_is_heard_while_c_code_runs():
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            _heard(lambda: ctypes.CDLL(None).sleep(60))  # as the engine: C that releases Python's lock
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert time.monotonic() - start < 30


def test_what_c_code_answers_or_raises_comes_back():
    def fail():
        raise OSError("no")

    assert _heard(lambda: 7) == 7
    with pytest.raises(OSError, match="no"):
        _heard(fail)


NCCL = """<system version="1"><cpu numaid="0" affinity="ffff" arch="x86_64">
<pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="80" rank="0"
gdr="1"><nvlink target="{target}" count="4" tclass="0x030200"/></gpu></pci>
<pci busid="0000:04:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="80" rank="1"
gdr="1"><nvlink target="0000:03:00.0" count="4" tclass="0x030200"/></gpu></pci></cpu></system>"""


@pytest.mark.parametrize(("target", "lost"), [("0000:04:00.0", 0), ("0000:99:00.0", 1)])
def test_a_link_of_somebodys_dump_that_leads_to_nothing_is_a_warning(tmp_path, target, lost):
    path = tmp_path / "nccl.xml"
    path.write_text(NCCL.format(target=target))

    warnings = [w for w in load_dump(path, load_catalogue()).warnings if "not in the file" in w]

    assert len(warnings) == lost
    assert all(target in warning and "4 of GPU0" in warning for warning in warnings)


ROW = "{size} {count} float sum -1 {time} {algbw} 18.35 0\n"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (ROW.format(size=1024, count=256, time="1e-320", algbw="10.49"), "a time of"),
        (ROW.format(size=1024, count=256, time="9" * 5000, algbw="10.49"), "5000 digits"),
        ("".join(ROW.format(size=1024 * n, count=256 * n, time=f"{100 + n}", algbw="N/A") for n in range(1, 3000)),
         "at most 2,000 rows"),
    ],
    ids=["no time", "digits", "rows"],
)  # fmt: skip
def test_a_table_with_an_impossible_figure_is_refused(table, said):
    with pytest.raises(InputError, match=said):
        parse_tables(table, "t.txt")


def test_a_corpus_folder_leaves_out_what_is_no_text(tmp_path):
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / ".#good.py").symlink_to("user@host.1234")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.py")
    named = os.fsdecode(b"caf\xe9.py")
    (tmp_path / named).write_text("y = 2\n")

    found = find_files([str(tmp_path)], "*.py")

    assert sorted(file.name for _, file in found) == sorted(["good.py", named])
    assert split_files(found, 0.5).train


def test_a_vocabulary_reaches_to_the_largest_number(tmp_path):
    vocabulary = {"a": 0, "b": 5000, "[UNK]": 2}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))

    assert vocabulary_size(str(tmp_path / "tokenizer.json")) == 5001


@pytest.mark.parametrize("change", [{"architectures": 7}, {"rope_scaling": [1]}, {"rope_parameters": "x"}])
def test_a_config_of_hugging_face_with_odd_types_is_refused(tmp_path, change):
    config = {"vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config | change))

    with pytest.raises(InputError, match="expected"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    "row",
    [*('{"loss": 2}', '{"step": 1e999}', '{"step": -1}', '{"step": 0.5}', "\0\0", "[]"), '{"step": 1, "losr": 1e999}'],
)
def test_a_damaged_row_of_metrics_is_named_by_its_line(tmp_path, row):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 0, "loss": NaN}}\n{row}\n')

    with pytest.raises(InputError, match=r"metrics\.jsonl:2: "):
        RunFolder(tmp_path).metric_rows()


def test_a_job_of_billions_of_stages_is_refused(tmp_path):
    (tmp_path / "job.toml").write_text("[parallelism]\npipeline_parallel_degree = 2147483648\n[model]\nname='llama3'\n")

    with pytest.raises(InputError, match="expected at most"):
        read_job([str(tmp_path / "job.toml")], JobOptions(gpus=64))


def test_a_log_with_a_number_of_thousands_of_digits_is_named_as_not_read(tmp_path):
    (tmp_path / "rank0.log").write_text("world_size " + "9" * 5000 + "\n")

    (tmp_path / "rank1.log").write_text("[rank1]: step 1\n")

    assert any("rank0.log" in what for what in examine_files([tmp_path]).missing)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("simulate", "--oversubscription", "nan"), "--oversubscription"),
        (("simulate", "--jitter", "inf"), "--jitter"),
        (("simulate", "--ranks", "100000000000"), "--ranks"),
        (("plan", "--gpus", "8000000000000000000"), "--gpus"),
        (("plan", "--global-batch", "9000000000000000000"), "--global-batch"),
        (("plan", "--target-mfu", "nan"), "--target-mfu"),
    ],
)
def test_numbers_of_the_command_line_have_bounds_too(words, option, capsys):
    assert cli.run_command([*words]) == 2
    said = capsys.readouterr().err
    assert option in said
    assert ("is not in the range 0<=x<=10" if option == "--jitter" else "expected") in said
