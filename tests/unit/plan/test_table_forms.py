"""Tables of runs as spreadsheets, reports and other engines write them: read as they are meant, or refused."""

import codecs

import pytest

from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.tables.reading import read_table
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models

CATALOGUE, KNOWN, MODELS = load_catalogue(), book(), known_models()
CELLS = {
    **{"id": "a", "gpu": "H100", "num_gpus": "64", "model_name": "llama3-70b", "seq_len": "8192"},
    **{"global_batch_sequences": "1024", "micro_batch": "1", "tp": "4", "pp": "4", "dp": "4"},
    **{"zero_stage_fsdp": "1", "step_time_s": "116.25", "family": "megatron"},
}


def table(cells, mark=","):
    return f"{mark.join(cells)}\n{mark.join(cells.values())}\n"


def rows(tmp_path, content, name="runs.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_rows(path, CATALOGUE, KNOWN, MODELS)


def without(*names, **more):
    return {name: cell for name, cell in CELLS.items() if name not in names} | more


def barred(cells):
    lines = (list(cells), ["---", *[":--:"] * (len(cells) - 1)], list(cells.values()))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@pytest.mark.parametrize(
    "content",
    [
        table(CELLS, ";"),
        table(CELLS, "\t"),
        barred(CELLS),
        codecs.BOM_UTF8 + table(CELLS).replace("\n", "\r\n").encode(),
        table(CELLS, "\t").encode("utf-16"),
        "# our runs, May\n\n" + table(CELLS) + "," * (len(CELLS) - 1) + "\n",
        table(CELLS | {"step_time_s": "116,25"}, ";"),
        table(CELLS | {"global_batch_sequences": "1,024", "seq_len": "8,192"}, ";"),
    ],
    ids=["semicolons", "tabs", "markdown", "mark", "utf-16", "comments-and-no-cells", "decimal-comma", "thousands"],
)
def test_one_table_is_the_same_in_every_form(tmp_path, content):
    (plain,) = rows(tmp_path, table(CELLS))

    assert rows(tmp_path, content, "other") == [plain]
    assert plain.run is not None
    assert plain.measured_step_time_s == 116.25


def test_a_comma_before_three_digits_is_decimal_where_another_of_its_column_can_be_nothing_else(tmp_path):
    names, plain = table(CELLS | {"step_time_s": "116,25"}, ";").splitlines()
    both = "\n".join((names, plain, plain.replace("116,25", "5,295")))
    alone = "\n".join((names, plain.replace("116,25", "5,295")))

    assert [row.measured_step_time_s for row in rows(tmp_path, both)] == [116.25, 5.295]
    assert [row.measured_step_time_s for row in rows(tmp_path, alone, "alone")] == [None]


def test_columns_go_by_the_names_that_engines_and_people_give_them(tmp_path):
    said = dict(
        zip(
            (
                *("Run", "GPU type", "World size", "Model", "Sequence length", "Global Batch Size", "micro-batch-size"),
                *("Tensor Parallel Size", "pipeline_model_parallel_size", "Data Parallel", "ZeRO", "Step time (ms)"),
                "framework",
            ),
            (CELLS | {"step_time_s": "116250"}).values(),
            strict=True,
        )
    )

    assert rows(tmp_path, table(said)) == rows(tmp_path, table(CELLS), "other")


@pytest.mark.parametrize(
    ("column", "cell", "seconds"),
    [
        ("step_time_s", "116250 ms", 116.25),
        ("iteration time", "1.9375 min", 116.25),
        ("Step time (ms)", '"116.250,25"', 116.25025),  # points part thousands, and a comma the fraction
        ("step_time_s", '"116,250.25 ms"', 116.25025),
    ],
)
def test_a_measured_time_has_the_unit_that_it_says(tmp_path, column, cell, seconds):
    (row,) = rows(tmp_path, table(without("step_time_s", **{column: cell})))

    assert row.measured_step_time_s == pytest.approx(seconds)


@pytest.mark.parametrize("name", ["Tokens / sec / GPU", "Throughput (T/s/GPU)", "TPS per GPU", "tok/GPU/s"])
def test_tokens_a_second_of_one_gpu_make_the_measured_step_where_no_time_is_stated(tmp_path, name):
    (row,) = rows(tmp_path, table(without("step_time_s", **{name: '"1,128"'})))

    assert row.measured_step_time_s == pytest.approx(1024 * 8192 / (1128 * 64))


def test_a_measured_time_goes_before_tokens_a_second_and_a_rate_of_all_gpus_is_not_read(tmp_path):
    assert rows(tmp_path, table(CELLS | {"tokens/s/GPU": "50"}))[0].measured_step_time_s == 116.25
    assert rows(tmp_path, table(without("step_time_s", **{"tokens/s": "72192"})))[0].measured_step_time_s is None


def two(first, second, mark=","):
    return table(first, mark) + f"{mark.join(second.values())}\n"


def test_a_column_fsdp_of_ones_and_zeros_is_a_switch(tmp_path):
    cells = without("zero_stage_fsdp")
    on, off = rows(tmp_path, two(cells | {"FSDP": "1"}, cells | {"FSDP": "0"}))

    assert (on.run.layout.zero, off.run.layout.zero) == (3, 1)
    assert "ZeRO 1" in off.run.assumed  # what its stack does without


def test_an_engine_that_always_shards_does_not_where_the_switch_is_off(tmp_path):
    (row,) = rows(tmp_path, table(without("zero_stage_fsdp", "family", family="torchtitan", FSDP="no")))

    assert row.run.layout.zero == 0


def test_a_column_fsdp_of_zeros_and_numbers_of_ranks_says_how_many_share_the_states(tmp_path):
    cells = without("zero_stage_fsdp", "tp", "pp", "dp", tp="1", pp="1")
    texts = [table(cells | {"FSDP": said}).splitlines() for said in ("64", "8", "0")]
    whole, part, off = rows(tmp_path, "\n".join([texts[0][0], *(line for _, line in texts)]))

    assert [(row.run.layout.zero, row.run.shard) for row in (whole, part, off)] == [(3, 64), (3, 8), (1, 64)]


def test_more_ranks_than_there_are_cannot_share_the_states(tmp_path):
    (row,) = rows(tmp_path, table(without("zero_stage_fsdp", FSDP="128")))

    assert "128 does not divide dp x cp = 4" in row.reason


@pytest.mark.parametrize(("first", "second"), [("1", "1"), ("1", "8")])
def test_a_column_fsdp_that_may_be_a_number_of_ranks_is_no_switch(tmp_path, first, second):
    cells = without("zero_stage_fsdp")

    for row in rows(tmp_path, two(cells | {"FSDP": first}, cells | {"FSDP": second})):
        assert "column FSDP is not read" in row.reason


def test_a_line_with_fewer_cells_than_columns_is_not_priced(tmp_path):
    short = "\n".join([*barred(CELLS).splitlines(), "| b | H100 | 64 | llama3-70b |"])
    whole, cut = rows(tmp_path, short)
    assert whole.run is not None
    assert cut.reason == "9 cells fewer than the table has columns: which is missing is not known"

    *_, cut = rows(tmp_path, table(CELLS) + "b,H100,64,llama3-70b\n")
    assert cut.run is None


def test_a_line_that_lacks_a_cell_in_its_middle_is_told_to_be_one_short(tmp_path):
    head, line = table(without("step_time_s", step_time_s="116.25")).splitlines()
    cells = line.split(",")
    shifted = ",".join(cells[:4] + cells[5:])

    *_, cut = rows(tmp_path, "\n".join((head, line, shifted)))
    assert cut.run is None
    assert cut.reason.startswith("1 cell fewer than the table has columns; if the last are missing, ")

    *_, unmeasured = rows(tmp_path, "\n".join((head, line, ",".join(cells[:-1]))))
    assert unmeasured.run is not None


def test_only_the_columns_that_a_table_lacks_are_named(tmp_path):
    with pytest.raises(InputError, match=r"with the column gpu in its first line; it has .*num_gpus"):
        rows(tmp_path, table(without("gpu")))


def test_a_line_may_end_before_cells_of_measurements_and_notes(tmp_path):
    cells = without("step_time_s", step_time_s="116.25", notes="")

    assert rows(tmp_path, f"{','.join(cells)}\n{','.join(list(cells.values())[:-2])}\n")[0].run is not None


def test_columns_and_cells_of_other_trainers_are_read(tmp_path):
    more = {"SeqLen (T)": "8192", "Sharding Strategy": "FULL_SHARD", "Activation Checkpointing": "True"}
    cells = without("seq_len", "zero_stage_fsdp", **more, Precision="amp_bf16")
    (row,) = rows(tmp_path, table(cells))

    assert (row.run.layout.zero, row.run.layout.recompute, row.run.seq_len) == (3, "full", 8192)
    assert "recompute full: the table says 'True', not what" in row.run.assumed


def test_a_count_may_have_the_word_of_its_column_behind_it_and_no_other(tmp_path):
    words = {"num_gpus": "64 GPUs", "seq_len": "8192 tokens", "global_batch_sequences": "1024 seqs"}
    (worded,) = rows(tmp_path, table(CELLS | words))
    (plain,) = rows(tmp_path, table(CELLS))
    (tokens,) = rows(tmp_path, table(CELLS | {"global_batch_sequences": "1024 tokens"}))

    assert worded == plain
    assert tokens.reason == (
        "global_batch_sequences: '1024 tokens' are 0.125 sequences of 8192 tokens: expected whole ones"
    )


def test_a_batch_of_tokens_is_not_read_as_one_of_sequences(tmp_path):
    cells = without("global_batch_sequences", **{"Global Batch Size (T)": "8388608"})

    assert rows(tmp_path, table(cells))[0].run.global_batch == 8388608 // 8192


@pytest.mark.parametrize("word", ["interleaved", "Interleaved1F1B"])
def test_an_interleaved_schedule_without_its_virtual_stages_has_two_and_says_so(tmp_path, word):
    plain, looped = rows(tmp_path, two(CELLS | {"schedule": "1f1b"}, CELLS | {"schedule": word}))

    assert (plain.run.layout.vpp, looped.run.layout.vpp) == (1, 2)
    assert f"vpp 2, the fewest of schedule {word}" in looped.run.assumed
    assert rows(tmp_path, table(CELLS | {"schedule": word, "vpp": "5"}))[0].run.layout.vpp == 5


@pytest.mark.parametrize(
    ("column", "cell", "size"),
    [
        ("peak memory [GiB]", "71.5", 71.5 * 2**30),
        ("peak_memory_GB", "71.5", 71.5e9),
        ("peak_memory_bytes_per_gpu", "71.5 GiB", 71.5 * 2**30),
        ("peak_memory_bytes_per_gpu", "71", 71),
    ],
)
def test_a_measured_memory_has_the_unit_of_its_cell_or_its_column(tmp_path, column, cell, size):
    assert rows(tmp_path, table(CELLS | {column: cell}))[0].measured_peak_memory_bytes == size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tp=4,pp=4,dp=4,mbs=1,zero=1", "tp=4,pp=4,dp=4,mbs=1,zero=1"),
        ("TP4 PP4 DP4 ZeRO-1", "tp=4,pp=4,dp=4,mbs=1,zero=1"),
        ("tp4xpp4xdp4", "tp=4,pp=4,dp=4,mbs=1,zero=1"),
        ("tensor_parallel_degree=8,dp_shard=8", "tp=8,dp=8,mbs=1,zero=3"),
    ],
)
def test_a_column_of_layouts_stands_for_those_of_their_keys(tmp_path, text, expected):
    cells = without("tp", "pp", "dp", "zero_stage_fsdp", parallelism=f'"{text}"')
    (row,) = rows(tmp_path, table(cells))

    assert row.reason is None
    said = str(row.run.layout).replace(",sp=1", "")
    assert said == expected


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (CELLS | {"layout": '"tp=8,pp=4"'}, "layout: 'tp=8,pp=4', but tp = 4"),
        (without("tp", layout='"tp=4,tp=8"'), "expected each KEY=VALUE once"),
        (without("tp", layout="FSDP"), "expected each KEY=VALUE once"),
        (without("tp", layout="rows=3"), "expected KEY=VALUE with keys of mbs"),
    ],
)
def test_a_layout_that_is_not_understood_or_contradicts_a_cell_is_refused(tmp_path, cells, reason):
    assert reason in rows(tmp_path, table(cells))[0].reason


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (without("tp", "pp", "dp", split="TP4 PP4"), "column split is not read, and says 'TP4 PP4' of the layout"),
        (without("tp", "dp", "zero_stage_fsdp", fsdp="1"), "column fsdp is not read, and says '1' of the layout"),
        (without("tp", "dp", **{"tensor paralell": "4"}), "column tensor paralell, '4', is not read: did you mean tp?"),
        (CELLS | {"precison": "fp8"}, "column precison, 'fp8', is not read: did you mean precision?"),
    ],
)
def test_a_row_whose_split_or_precision_stands_in_a_column_that_nothing_reads_is_not_priced(tmp_path, cells, reason):
    (row,) = rows(tmp_path, table(cells))

    assert row.run is None
    assert reason in row.reason


def test_columns_that_price_nothing_stay_unread(tmp_path):
    more = {"cluster": "ours", "order_id": "7", "comment": "tp 4 was slow", "tokens_seen": "3e9", "precison": ""}

    (row,) = rows(tmp_path, table(CELLS | more))
    assert row.run is not None


def test_two_columns_that_mean_one_are_refused_unless_one_has_its_name(tmp_path):
    with pytest.raises(InputError, match="columns 'GPUs' and 'world size' are both num_gpus"):
        rows(tmp_path, table(without("num_gpus", GPUs="64", **{"world size": "64"})))

    (row,) = rows(tmp_path, table(CELLS | {"GPUs": "eight"}))
    assert row.run.gpus == 64


def test_a_table_without_gpus_says_which_columns_it_has(tmp_path):
    with pytest.raises(InputError, match=r"expected a table with the columns gpu and num_gpus .*; it has id, nodes"):
        rows(tmp_path, "name,nodes\nx,8\n")


def test_a_table_whose_column_of_gpus_is_a_slip_is_told_the_name(tmp_path):
    with pytest.raises(InputError, match=r"; num_gpuss: did you mean num_gpus\?"):
        rows(tmp_path, table(without("num_gpus", num_gpuss="64")))


def test_text_that_is_no_utf_16_is_refused_by_its_byte(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(codecs.BOM_UTF16_LE + b"a")

    with pytest.raises(InputError, match="not UTF-16 text"):
        read_table(path)
