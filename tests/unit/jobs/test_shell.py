"""Shell scripts are followed as far as they decide for themselves, and never run."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.shell.marks import reasons, shown
from meshwright.jobs.shell.script import follow


def words(script: str, **given: str) -> list[str]:
    """Return the words of the only command that a script starts."""
    (one,) = follow(script, where="x.sh", given=given).started
    return [shown(word) for word in one.words]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=(--a 1)\nA+=(--b 2)\nrun ${A[@]}", ["run", "--a", "1", "--b", "2"]),
        ('A=(--a "x y")\nrun "${A[@]}"', ["run", "--a", "x y"]),
        ("A=1 B=2\nrun $A $B", ["run", "1", "2"]),
        ("N=${N:-4}\nrun $((N * 8)) ${N}", ["run", "32", "4"]),
        ('ARGS=" --a 1 \\\n --b 2 "\nrun $ARGS', ["run", "--a", "1", "--b", "2"]),
        ('ARGS="--a"\nARGS="$ARGS --b"\nARGS+=" --c"\nrun $ARGS', ["run", "--a", "--b", "--c"]),
        ("if [[ 2 -gt 1 && a == a* ]]; then run yes; else run no; fi", ["run", "yes"]),
        ('if [ "$X" = "1" ]; then run one; elif [ -z "$X" ]; then run none; fi', ["run", "none"]),
        ("for x in a b c; do L+=($x); done\nrun ${L[*]} ${#L[@]}", ["run", "a", "b", "c", "3"]),
        ("i=0\nwhile (( i < 3 )); do ((i++)); done\nrun $i", ["run", "3"]),
        ("f() { local T=$1; run --tp $T; }\nf 8", ["run", "--tp", "8"]),
        ("P=/a/b.json\nrun ${P##*/} ${P%.json} ${P/b/c}", ["run", "b.json", "/a/b", "/a/c.json"]),
        ('CMD="run --a 1"\neval $CMD', ["run", "--a", "1"]),
        ("bash -c 'run --a 1'", ["run", "--a", "1"]),
        ("X=$(echo 3)\nrun $X $(expr 2 \\* 3)", ["run", "3", "6"]),
        ("run a 2>&1 | tee log > /dev/null".replace(" | tee log > /dev/null", ""), ["run", "a"]),
        ("case full in se*) run s ;; full|all) run f ;; *) run o ;; esac", ["run", "f"]),
        ("run --nnodes 2 > log.txt", ["run", "--nnodes", "2"]),
        ("export A=5\nrun ${A} ${B:+--b} ${A:+--a}", ["run", "5", "--a"]),
        ("# comment\nrun 'a # b' # c", ["run", "a # b"]),
        ("X=big\nNAME=X\nrun ${!NAME} ${X^^}", ["run", "big", "BIG"]),
        ("run \\\n  --a \\\n  # no\n", ["run", "--a"]),
        ("[ $A == 1 ] && B=x || B=y\nrun $B", ["run", "y"]),
    ],
)
def test_expansions_and_conditions(script, expected):
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "given", "assumed"),
    [
        ("KIND=${1:-small}\nrun $KIND", {}, ["KIND=small (the default of argument 1 of x.sh)"]),
        ("run ${2-4} --tp ${3:-8}", {}, [f"{n} (the default of argument {p} of x.sh)" for n, p in ((4, 2), (8, 3))]),
        ("LOG_DIR=${1:-/tmp/a}\nrun $LOG_DIR ${2:-}", {}, []),  # of no price
        ("KIND=${1:-small}\nrun $KIND", {"KIND": "large"}, []),  # said from outside
        ("f() { run ${1:-2}; }\nf", {}, []),  # of a function, which the script calls
    ],
)
def test_the_default_of_an_argument_that_is_not_given_is_said(script, given, assumed):
    assert follow(script, where="x.sh", given=given).assumed == assumed


def test_a_loop_over_arguments_that_are_not_there_ends_at_once():
    script = 'TP=1\nwhile [[ $# -gt 0 ]]; do\n case "$1" in\n --tp) TP=$2; shift 2;;\n *) shift;;\n esac\ndone\nrun $TP'

    assert words(script) == ["run", "1"]


def test_a_here_document_for_sbatch_is_a_script_with_slurm_variables_of_its_own():
    script = (
        "TP=4\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --ntasks-per-node=8\n"
        "srun run --tp $TP --n \\$SLURM_NNODES\nEOF\n"
    )

    assert words(script) == ["srun", "run", "--tp", "4", "--n", "16"]


def test_a_here_document_for_a_file_is_kept_and_not_followed():
    outcome = follow('S=2\ncat <<EOT > ds.json\n{"zero": $S}\nEOT\nrun --config ds.json', where="x.sh")

    assert outcome.documents == {"ds.json": '{"zero": 2}\n'}
    assert len(outcome.started) == 1


def test_what_only_a_machine_knows_is_a_mark_with_its_reason():
    outcome = follow("N=$(nvidia-smi -L | wc -l)\nrun --n $N --h $HOSTNAME_X", where="x.sh")

    from meshwright.jobs.shell.marks import reasons

    assert [reasons(word) for word in outcome.started[0].words] == [
        *([], [], ["$(nvidia-smi -L | wc -l)"], [], ["$HOSTNAME_X"]),
    ]


def test_a_condition_that_only_a_machine_knows_is_not_taken_and_said():
    outcome = follow("if [ -d /data ]; then run a; else run b; fi", where="x.sh")

    assert outcome.started[0].words == ("run", "b")
    assert any("known only on the machine" in text for text in outcome.assumed)


def test_a_sourced_file_that_is_not_there_is_named_and_its_variables_are_not_set():
    outcome = follow("source ./config.sh\nrun ${TP:-2}", where="x.sh")

    assert outcome.sourced_missing == ["./config.sh"]
    assert outcome.started[0].words == ("run", "2")


def test_a_sourced_file_that_is_given_sets_its_variables():
    outcome = follow("source conf/a.sh\nrun $TP", where="x.sh", find=lambda path: "export TP=8\n")

    assert outcome.started[0].words == ("run", "8")


def test_variables_from_outside_win_over_those_of_the_script():
    assert words("TP=4\nrun $TP", TP="2") == ["run", "2"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("while true; do X=1; done", "does not end|commands, refused"),
        ("f() { f; }\nf", "nested too deeply"),
        (
            "X=a\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do X=$X$X; done\nrun $X",
            "grows beyond",
        ),
        ("run 'open", "quotation is not closed"),
        ("run ${X", "is not closed"),
        ("if true; then run", "line 1: expected 'fi'"),
        ("(" * 300 + "run", "nested too deeply|end of the script"),
        ("A=(1 2", "array is not closed"),
        ("$(" * 2000, "not closed|nested too deeply"),
    ],
)
def test_a_hostile_or_broken_script_is_one_line(script, message):
    with pytest.raises(InputError, match=message) as error:
        follow(script, where="x.sh")

    assert "\n" not in str(error.value)
    assert str(error.value).startswith("x.sh")


def test_nothing_of_a_script_is_run(tmp_path):
    follow(f"touch {tmp_path}/a\n$(touch {tmp_path}/b)\nX=`touch {tmp_path}/c`\neval touch {tmp_path}/d", where="x.sh")

    assert not list(tmp_path.iterdir())


def test_a_loop_that_waits_for_the_machine_is_passed_over():
    assert words("until [ -f /tmp/ready ]; do sleep 1; done\nwhile [ ! -f /x ]; do sleep 1; done\nrun a") == [
        "run",
        "a",
    ]


def test_a_branch_on_a_commands_success_is_taken_and_said():
    outcome = follow("if nvidia-smi | grep -q H100; then N=8; else N=4; fi\nrun $N", where="x.sh")

    assert outcome.started[-1].words == ("run", "8")
    assert any("grep -q H100` succeeds is known only on the machine" in text for text in outcome.assumed)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("let N=2*4\nrun $N", ["run", "8"]),
        ('declare -A TP=( [8b]=1 [70b]=8 )\nS=70b\nrun ${TP[$S]} "${TP[8b]}"', ["run", "8", "1"]),
        ("M[large]=4\nrun ${M[large]}", ["run", "4"]),
    ],
)
def test_let_and_arrays_with_named_elements(script, expected):
    assert words(script) == expected


def test_a_script_that_submits_itself_again_is_followed_once():
    text = "#SBATCH -N 1\nsbatch $0\nsbatch run.sh\ntorchrun train.py\n"

    outcome = follow(text, where="run.sh", find=lambda path: text)

    assert [one.words for one in outcome.started] == [("torchrun", "train.py")]


def test_what_a_script_exports_is_not_exported_by_the_one_that_starts_it():
    texts = {"a.sh": "export N=2\n", "b.sh": "run ${N:-none}\n"}

    outcome = follow("N=8\nbash a.sh\nbash b.sh", where="x.sh", find=lambda path: texts[path])

    assert [one.words for one in outcome.started] == [("run", "none")]


@pytest.mark.parametrize(
    ("reader", "expected"), [("read -ra X", ["a", "b"]), ("read -r -a X", ["a", "b"]), ("mapfile -t X", ["a,b"])]
)
def test_an_array_that_is_read_has_the_parts_of_the_line(reader, expected):
    assert words(f"IFS=',' {reader} <<< 'a,b'\nrun ${{X[@]}}") == ["run", *expected]


def test_the_only_name_that_is_read_gets_the_whole_line():
    assert words("IFS=, read X <<< 'a,b'\nrun $X") == ["run", "a,b"]


@pytest.mark.parametrize("form", ["%.0f", "%e", "%g", "%o", "%c"])
def test_a_form_of_printf_that_is_not_followed_is_unknown(form):
    outcome = follow(f'N=$(printf "{form}" 3.6)\nrun --n $N', where="x.sh")

    assert reasons(outcome.started[0].words[2])


def test_a_slice_at_an_unknown_place_is_unknown():
    outcome = follow("X=abc; N=$(nproc)\nrun --n ${X:$N:2}", where="x.sh")

    assert reasons(outcome.started[0].words[2])


def test_an_arithmetic_condition_on_what_is_not_set_is_listed():
    found = follow("TP=1\n((NODES > 4)) && TP=8\n", where="a.sh")

    assert found.variables["TP"] == "1"
    assert found.assumed == ["a.sh line 2: ((NODES > 4)) is known only on the machine ($NODES), taken as false"]


def test_an_element_of_an_unknown_place_is_named_with_its_array():
    found = follow("ALL=(1 2)\nTP=${ALL[$PLACE]}\n", where="a.sh")

    assert shown(str(found.variables["TP"])) == "ALL[$PLACE]"


LOOP = """WORDS=
for host in $({list}); do
  WORDS="$WORDS --on $host"
  ssh $host "torchrun --nnodes 2 --nproc_per_node 8 train.py" &
done
"""


def test_a_loop_over_a_list_that_is_not_known_is_read_once_where_it_starts_ranks():
    outcome = follow(LOOP.format(list="scontrol show hostnames") + "run $WORDS", where="x.sh")

    assert [one.words[0] for one in outcome.started] == ["torchrun", "run"]
    assert list(map(shown, outcome.started[1].words)) == [
        "run",
        "$WORDS",
    ]  # what it sets, again and again, is not known
    assert any("is read once" in text for text in outcome.assumed)


COUNTS = {
    "an array of what a command prints": "N=($(scontrol show hostnames $L))\nrun ${#N[@]}",
    "with another element": "N=(`scontrol show hostnames $L`)\nN+=(one)\nrun ${#N[*]}",
    "a copy": 'N=($(scontrol show hostnames $L))\nM=("${N[@]}")\nrun ${#M[@]}',
    "lines that are read": 'mapfile -t N <<< "$(scontrol show hostnames $L)"\nrun ${#N[@]}',
    "lines of a process": "readarray -t N < <(scontrol show hostnames $L)\nrun ${#N[@]}",
    "arguments": "set -- $(scontrol show hostnames $L)\nrun $#",
}
LOOPS = {
    "words of one line": 'read -ra N <<< "$(hosts)"\nrun ${#N[@]}',
    "the length of a text": "N=$(hosts)\nrun ${#N}",
    "names of one line": 'read -r A N <<< "$(hosts) one two"\nrun $N',
    "a sum in a loop": "N=0\nfor host in $(hosts); do N=$((N + 1)); done\nrun $N",
    "a count in a loop": "N=0\nfor host in $(hosts); do ((N++)); done\nrun $N",
    "a loop over lines": "N=0\nwhile read -r host; do N=$((N + 1)); done < hosts\nrun $N",
    "lines of a process in a loop": "N=0\nwhile read -r host; do let N+=1; done < <(hosts)\nrun $N",
}


@pytest.mark.parametrize("script", [*COUNTS.values(), *LOOPS.values()], ids=[*COUNTS, *LOOPS])
def test_how_many_words_a_machine_prints_is_not_known(script):
    assert all(map(reasons, follow(script, where="x.sh").started[-1].words[1:]))


@pytest.mark.parametrize(("name", "nodes"), [(name, 5 if "another" in name else 4) for name in COUNTS])
def test_the_hosts_of_a_job_of_slurm_are_as_many_as_it_asks_for(name, nodes):
    assert words(f"#!/bin/bash\n#SBATCH --nodes=4\n{COUNTS[name]}") == ["run", str(nodes)]


def test_a_variable_that_a_loop_of_unknown_rounds_leaves_alone_is_as_before():
    assert words("A=1\nfor host in $(hosts); do B=$host; done\nrun $A") == ["run", "1"]


def test_a_loop_over_a_list_that_is_not_known_is_passed_over_where_it_starts_none():
    outcome = follow("for file in $(ls); do rm $file; done", where="x.sh")

    assert not outcome.started
    assert any("is passed over" in text for text in outcome.assumed)


def test_a_loop_over_a_list_that_is_not_known_may_hold_what_never_ends():
    outcome = follow(
        "for file in $(ls); do while true; do X=1; done; done\nfor x in 1 2; do run $x; done", where="x.sh"
    )

    assert [one.words for one in outcome.started] == [("run", "1"), ("run", "2")]
