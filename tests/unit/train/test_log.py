"""The logs of a run in progress: a line of JSON a step, events of TensorBoard, plain lines without a terminal."""

import contextlib
import json
import resource
import signal
import struct

import pytest
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event

from meshwright.train.run.log import RunLog, progress
from meshwright.train.run.run_folder import RunFolder

ROW = {
    "step": 9, "loss": 2.5421, "learning_rate": 1e-3, "grad_norm": 1.2345, "step_time_s": 0.0651,
    "tokens_per_s": 15729.6, "memory_bytes": 383537152.0, "mfu": 0.2656,
}  # fmt: skip
ROWS = [{"step": step, "loss": 3.0 - step, "tokens_per_s": 100.0, "in": [0, 1]} for step in range(3)]


def logged(folder, rows, first_step=0):
    folder.mkdir(exist_ok=True)
    run = RunFolder(folder)
    log = RunLog(run, first_step, 3)
    for row in rows:
        log.step(row)
    log.close()
    return run


def masked(data: bytes) -> int:
    """Return the checksum of TFRecord."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def events(path):
    """Return the events of a file, its lengths and contents held against their checksums as TensorBoard does."""
    data, found = path.read_bytes(), []
    while data:
        size, size_crc = struct.unpack_from("<QI", data)
        payload = data[12 : 12 + size]
        (crc,) = struct.unpack_from("<I", data, 12 + size)
        assert (size_crc, crc) == (masked(data[:8]), masked(payload))
        found.append(Event.FromString(payload))
        data = data[16 + size :]
    return found


def test_every_number_of_a_step_is_a_scalar_of_tensorboard(tmp_path):
    run = logged(tmp_path / "run", ROWS)
    (path,) = run.tensorboard.iterdir()
    first, *steps = events(path)

    assert ".tfevents." in path.name
    assert first.file_version == "brain.Event:2"
    assert [(e.step, {v.tag: v.simple_value for v in e.summary.value}) for e in steps] == [
        (row["step"], {"loss": row["loss"], "tokens_per_s": 100.0}) for row in ROWS
    ]


def test_a_run_that_goes_on_adds_to_its_metrics(tmp_path):
    logged(tmp_path / "run", ROWS[:2])
    run = logged(tmp_path / "run", ROWS[2:], first_step=2)

    assert [json.loads(line) for line in run.metrics.read_text().splitlines()] == ROWS


def test_without_a_terminal_the_last_step_is_a_plain_line(tmp_path, capsys):
    logged(tmp_path / "run", ROWS)

    assert capsys.readouterr().err == "step 3/3  loss 1.000  100 tokens/s\n"


def test_a_line_has_loss_norm_time_rate_mfu_memory_and_what_is_left():
    assert progress(ROW, 75.2) == (
        "loss 2.542  gradient norm 1.23  65.1 ms  15,730 tokens/s  MFU 26.6%  366 MiB held  1 min 16 s left"
    )


def test_what_a_row_does_not_have_is_left_out():
    assert progress({"step": 0, "loss": 3.0, "tokens_per_s": 10.0}, 0.0) == "loss 3.000  10 tokens/s"


def test_an_mfu_that_is_not_known_is_said_to_be_unknown():
    assert progress({"loss": 3.0, "mfu": None, "memory_bytes": 2.0**20}, 0.0) == "loss 3.000  MFU unknown  1 MiB held"


def test_an_unknown_mfu_is_left_out_of_the_metrics_and_their_readers_go_on(tmp_path):
    rows = [{"step": 0, "loss": 3.0, "mfu": None}]
    run = logged(tmp_path / "run", rows)

    assert run.metrics.read_text() == '{"step": 0, "loss": 3.0}\n'
    assert run.metric_rows() == [{"step": 0, "loss": 3.0}]


def test_hours_are_told_in_hours():
    assert progress({"loss": 1.0}, 7261).endswith("2 h 1 min left")
    assert progress({"loss": 1.0}, 59.2).endswith("1 min 0 s left")


def test_rows_that_a_full_disk_refuses_are_written_once_there_is_room(tmp_path, no_room_beyond):
    rows = [{"step": step, "loss": 1.0, "parts": "x" * 500} for step in range(60)]  # beyond a buffer of Python
    folder = RunFolder(tmp_path)
    log = RunLog(folder, 0, len(rows))
    log.step(rows[0])

    with no_room_beyond(folder.metrics.stat().st_size + 20):  # in the middle of a row
        for row in rows[1:-1]:
            with pytest.raises(OSError, match="too large"):
                log.step(row)
    log.step(rows[-1])
    log.close()

    assert folder.metrics.read_text().splitlines() == [json.dumps(row) for row in rows]


@pytest.fixture
def no_room_beyond():
    """Return a context in which no file of this process grows beyond a size, as on a disk that is full."""

    @contextlib.contextmanager
    def limited(size_bytes):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        heeded = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, heeded)

    return limited
