"""Logs that show or export their newest line first: they say what they say in the other order, too."""

import json
from datetime import UTC, datetime

import pytest

from meshwright.postmortem.text.newest_first import oldest_first

from .made import judge, raised, summary, timed_out

BEGUN_S = 1_795_170_001
FAILED = [
    *(f"step {step} loss 2.1" for step in range(40, 46)),
    *raised(1, "KeyError: 'tokens_v3'"),
    "no output for 300 s",
    *(timed_out(rank, 812) for rank in (0, 2, 3)),
    *summary(0, -6),
]
OUTLIVED = [
    *(f"step {step} loss 2.1" for step in range(40, 46)),
    "[rank1]: ConnectionError: read timed out, will retry",
    *(f"step {step} loss 2.0" for step in range(46, 80)),
    "training finished after 80 steps",
]


def iso(at, end="Z"):
    return f"{datetime.fromtimestamp(BEGUN_S + 3 * at, UTC):%Y-%m-%dT%H:%M:%S}.{at % 1000:03}{end}"


def ns(at):
    return str((BEGUN_S + 3 * at) * 10**9 + at)


def of_loki(at, line, pod="job-0"):
    return {"stream": {"pod": pod}, "values": [[ns(at), line]]}


def streams(lines):
    """Two streams one after the other, as Loki answers; each newest first."""
    stamped = list(enumerate(lines))[::-1]
    found = [
        {
            "stream": {"pod": f"job-{half}"},
            "values": [[ns(at), line] for at, line in stamped if ("rank1" in line) == half],
        }
        for half in (True, False)
    ]
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": found}})


def quoted(line):
    return '"' + line.replace('"', '""') + '"'


def listed(lines, record, *, indent=None):
    return json.dumps([record(at, line) for at, line in enumerate(lines)][::-1], indent=indent)


def rows(lines, record):
    return "\n".join(record(at, line) for at, line in list(enumerate(lines))[::-1])


FORMS = {
    "clocks of a viewer": lambda lines: rows(lines, lambda at, line: f"{iso(at)} {line}"),
    "clocks and tabs": lambda lines: rows(lines, lambda at, line: f"{iso(at, '')}\t{line}"),
    "a journal": lambda lines: rows(lines, lambda at, line: f"Nov 20 10:{at:02}:07 m3 torchrun[88]: {line}"),
    "streams a line": lambda lines: rows(lines, lambda at, line: json.dumps(of_loki(at, line))),
    "streams of one answer": streams,
    "a dashboard's list": lambda lines: listed(
        lines, lambda at, line: {"line": line, "timestamp": ns(at), "date": iso(at), "fields": {"pod": "job-0"}}
    ),
    "a cloud's list": lambda lines: listed(
        lines, lambda at, line: {"insertId": f"a{at}", "textPayload": line, "timestamp": iso(at)}, indent=2
    ),
    "a list of a search": lambda lines: json.dumps(
        {"hits": {"hits": [{"_source": {"@timestamp": iso(at), "message": line}}
                           for at, line in list(enumerate(lines))[::-1]]}}
    ),
    "events in their contents": lambda lines: rows(
        lines,
        lambda at, line: json.dumps({"id": "A", "content": {"timestamp": iso(at), "service": "x", "message": line}}),
    ),
    "results of a search": lambda lines: rows(
        lines, lambda at, line: json.dumps({"preview": False, "result": {"_raw": line, "_time": iso(at, "+00:00")}})
    ),
    "fields of a query": lambda lines: json.dumps(
        {"results": [[{"field": "@timestamp", "value": iso(at, "")}, {"field": "@message", "value": x}]
                     for at, x in list(enumerate(lines))[::-1]]}
    ),
    "a table of a query": lambda lines: "@timestamp,@message,@logStream\n"
    + rows(lines, lambda at, line: f"{iso(at, '')},{quoted(line)},job/1"),
    "a table of events": lambda lines: "timestamp,message,logStreamName\n"
    + rows(lines, lambda at, line: f"{1000 * (BEGUN_S + 3 * at)},{quoted(line)},job/1"),
}  # fmt: skip

CASES = {name: form(FAILED).encode() for name, form in FORMS.items()}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_the_error_that_came_first_is_the_cause_though_it_stands_last(text, tmp_path):
    verdict = judge(tmp_path, {"export.log": text})

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("exception", (1,), 812)


@pytest.mark.parametrize("form", FORMS)
def test_an_error_that_the_job_outlived_is_none_though_it_stands_below_the_end(form, tmp_path):
    assert judge(tmp_path, {"export.log": FORMS[form](OUTLIVED).encode()}).kind == "none"


def test_the_lines_of_a_newest_first_log_are_shown_by_their_numbers_in_the_file(tmp_path):
    text = FORMS["clocks of a viewer"](FAILED)
    verdict = judge(tmp_path, {"export.log": text.encode()})

    rows = text.split("\n")
    assert {rows[line.line - 1] for line in verdict.evidence} == {line.text for line in verdict.evidence}


def test_what_one_record_says_on_several_lines_keeps_their_order(tmp_path):
    error = "\n".join(raised(2, "KeyError: 'x'"))
    lines = [*FAILED[:6], error, *(timed_out(rank, 812) for rank in (0, 1, 3))]

    verdict = judge(tmp_path, {"export.csv": FORMS["a table of a query"](lines).encode()})

    assert (verdict.kind, verdict.blamed) == ("exception", (2,))


UPRIGHT = ["first of all", *raised(1, "KeyError: 'x'"), "last of all"]
MOMENTS = [0, 5, 5, 5, 5, 30]


@pytest.mark.parametrize("is_upright", [True, False], ids=["upright", "turned"])
def test_lines_of_one_moment_stand_as_their_tracebacks_show(is_upright):
    known = [(f"{iso(moment)} ", line) for moment, line in zip(MOMENTS, UPRIGHT, strict=True)]
    known = [(f"{iso(at)} ", f"step {at}") for at in (-9, -6, -3)] + known
    order = sorted(range(len(known)), key=lambda at: known[at][0], reverse=True) if is_upright else range(8, -1, -1)
    shown = ["".join(known[at]) for at in order]

    read, lines = oldest_first(list(enumerate(shown, 1)))

    assert [row for _, row in read] == list(map("".join, known))
    assert [shown[lines[number] - 1] for number, _ in read] == [row for _, row in read]


def test_lines_that_stand_in_their_order_or_in_none_are_left_alone():
    ranks_at_once = [(at, f"{iso(at % 2)} [rank{at}]: waits") for at in range(1, 9)]
    plain = [(at, f"{iso(at)} step {at}") for at in range(1, 9)]

    assert oldest_first(ranks_at_once) == (ranks_at_once, {})
    assert oldest_first(plain) == (plain, {})
    assert oldest_first([(at, f"step {at}") for at in range(9)])[1] == {}


LARGE = [*FAILED[:10], *(f"still waiting, {n} s" for n in range(600)), *FAILED[10:]]
IN_PARTS = ("clocks of a viewer", "a cloud's list", "streams a line", "a table of a query", "a table of events")


@pytest.mark.parametrize("form", IN_PARTS)
def test_what_a_large_log_shows_in_its_head_came_after_what_it_shows_at_its_end(form, tmp_path, monkeypatch):
    waits = [line for line in FAILED if "SeqNum" in line]
    lines = [*(f"step {n} loss 2.0" for n in range(400)), *waits, *(f"closing {n}" for n in range(300))]
    text = FORMS[form]([*lines, *raised(1, "ValueError: the queue is closed")])
    monkeypatch.setattr("meshwright.postmortem.files.MOST_BYTES", len(text) * 9 // 10)
    monkeypatch.setattr("meshwright.postmortem.files.HEAD_BYTES", len(text) // 8)

    verdict = judge(tmp_path, {"export.log": text.encode()})

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("absent", (1,), 812)


@pytest.mark.parametrize("form", IN_PARTS)
def test_a_large_log_of_which_the_head_and_the_end_are_read_is_turned_round_as_one(form, tmp_path, monkeypatch):
    text = FORMS[form](LARGE)
    monkeypatch.setattr("meshwright.postmortem.files.MOST_BYTES", len(text) // 2)
    monkeypatch.setattr("meshwright.postmortem.files.HEAD_BYTES", len(text) // 4)

    verdict = judge(tmp_path, {"export.log": text.encode()})

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("exception", (1,), 812)
    shown = text.split("\n")
    lines = [line for line in verdict.evidence if "KeyError" in line.text or "SeqNum=812" in line.text]
    assert len(lines) >= 4
    for line in lines:  # a field of a record may stand some lines below its start
        own = "KeyError" if "KeyError" in line.text else line.text[-60:]
        assert any(own in row for row in shown[line.line - 1 : line.line + 4])


def test_a_field_of_a_query_whose_name_is_no_text_is_passed_over(tmp_path):
    fields = [{"field": {"a": 1}, "value": "2"}, {"field": "@message", "value": "ValueError: 7"}]

    assert judge(tmp_path, {"export.log": json.dumps({"results": [fields]}).encode()}).kind == "none"
