"""Runs: the scripts of a job followed each by itself, and which of them starts the training."""

import contextlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ..errors import InputError
from .documents import read_document
from .engines.openrlhf import is_supervised
from .engines.verl import is_verls
from .launch import (
    Launch,
    Owner,
    programs_of,
    read_command,
    starts_all,
    starts_ranks,
    training_commands,
)
from .nearby import nearby
from .outside import on_machines
from .shell.marks import shown
from .shell.script import follow
from .shell.state import ScriptOutcome, Started
from .sources import CONFIG_SUFFIXES, Sources
from .unsupported import unread_command, yaml_of_command

# engines whose command is known by the files that it names
BY_FILES = frozenset({"neox", "foundry", "nanotron", "picotron", "nemo_rl", "levanter", "olmo", "lingua"})
CONFIGURATION = r"\.(?:json|ya?ml|toml|conf)(?:[-.][A-Za-z]\w*)?$"  # or a template of one: job.yaml-template
READ = BY_FILES | {"litgpt"}  # whose command names no trainer that is not read: `fabric run` starts LitGPT


class SeveralTrainings(InputError):
    """Refusal of files that start different trainings."""


@dataclass(slots=True)
class _Runs:
    """The scripts of a job, followed each by itself: what they would start, and which of it trains."""

    outcomes: dict[str, ScriptOutcome] = field(default_factory=dict)
    launches: dict[str, Launch | None] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)  # scripts that leave by an `exit` before their training starts
    broken: dict[str, InputError] = field(default_factory=dict)

    @property
    def called(self) -> set[str]:
        """The scripts that others start or source: they are followed in their place there."""
        return {name for outcome in self.outcomes.values() for name in outcome.called}

    def main(self, sources: Sources) -> str | None:
        """Return the script that starts the training; InputError where two start different ones.

        Of the commands in a README, one that alone names files that are given is the one.
        """
        found = {name: launch for name, launch in self.launches.items() if launch and name not in self.called}
        if len(found) > 1 and found.keys() <= sources.blocks:
            given = {*sources.names, *map(str, sources.written)}
            named = {
                name: launch
                for name, launch in found.items()
                if any(PurePath(word.rpartition("=")[2]).name in given for word in launch.arguments)
            }
            if len({launch.training for launch in named.values()}) == 1:
                left = [name for name in found if name not in named]
                sources.assumed += [f"{name}: names files that are not given, and is passed over" for name in left]
                for name in left:
                    del self.outcomes[name]
                found = named
        if len({launch.training for launch in found.values()}) > 1:
            raise SeveralTrainings(f"{' and '.join(found)} both start a training; expected one")
        return next(iter(found), None)


def follow_scripts(scripts: Sequence[tuple[str, str]], sources: Sources) -> None:
    """Follow the scripts: scripts that start no training set variables for the one that does."""
    find = _finder(scripts, sources)
    runs = _Runs()
    scripts = [one for name, text in scripts for one in _chosen(name, text, find, sources)]

    def tried(name: str, text: str, *, stay: bool = False) -> tuple[ScriptOutcome, Launch | None]:
        outcome = follow(text, where=name, given=sources.overrides, find=find, stay=stay)
        return outcome, _chosen_training(outcome, name, _owner(sources, outcome), sources)

    for name, text in scripts:
        try:
            outcome, launch = tried(name, text)
            runs.outcomes[name] = outcome
            if launch is None and not outcome.called_missing:
                _, launch = tried(name, text, stay=True)
                runs.stays |= {name} if launch is not None else set()
            runs.launches[name] = launch
        except InputError as error:
            runs.broken[name] = error
    for name, _ in scripts:
        if name in runs.broken and name not in runs.called | sources.blocks:
            raise runs.broken[name]
    main, owner = runs.main(sources), None
    if main is None and runs.broken.keys() & sources.blocks:
        raise next(iter(runs.broken.values()))
    if main is None and (adopted := _adopted(runs, sources)) is not None:
        main, owner = adopted
    passed = {main, *runs.called, *(runs.broken.keys() & sources.blocks)}
    settings = [(name, text) for name, text in scripts if name not in passed]
    if main is not None:
        stay = main in runs.stays
        alone = [one for one in settings if not runs.launches.get(one[0])]
        text = dict(scripts)[main]
        outcome = follow(text, where=main, given=sources.overrides, find=find, before=alone, stay=stay)
        owner = owner or _owner(sources, outcome)
        sources.launch = _chosen_training(outcome, main, owner, sources)
        sources.folder = _folder_of(sources, outcome)
        _keep(outcome, sources)
        _leave_out(_files_of_others(outcome, owner, sources.launch), sources)
    else:
        for name, _ in settings:
            if name in runs.outcomes:
                _keep(runs.outcomes[name], sources)
    if sources.launch is not None and sources.machines is not None:
        before, sources.launch = sources.launch, on_machines(sources.launch, sources.machines)
        nodes = sources.launch.nodes
        if before.launcher == "torchrun" and not before.unknown and before.nodes is None and nodes and nodes[0] > 1:
            sources.assumed.append(
                f"torchrun joins the {nodes[0]} nodes of {sources.machines.where}: it has no --nnodes"
            )
    _note_commands(runs, sources)


def _chosen_training(outcome: ScriptOutcome, name: str, owner: Owner, sources: Sources) -> Launch | None:
    """Return the training that a script starts, of several the one of the line or place that is asked for.

    None where it starts none; InputError where it starts none in that line.
    """
    found = training_commands(outcome.started, owner)
    told = tuple(f"line {launch.line}: {shown(launch.program)}" for launch in found)
    line = sources.lines.get(name)
    if line is not None:
        found = [launch for launch in found if launch.line == line]
        if not found:
            raise InputError(f"{name}: starts no training in line {line} (it starts {', '.join(told) or 'none'})")
        told = tuple(f"line {line}: {shown(launch.program)}" for launch in found)
    if len(found) > 1:
        sources.trainings = told
        sources.rounds = _rounds(found, outcome)
    return found[min(sources.place, len(found) - 1)] if found else None


def _rounds(found: Sequence[Launch], outcome: ScriptOutcome) -> tuple[str, ...]:
    """Return the values of the loops' variables in which each of several trainings runs; () where two have the same."""
    names = [name for name in outcome.loops if len({one.variables.get(name) for one in found}) > 1]
    rounds = [[(name, one.variables.get(name)) for name in names] for one in found]
    told = tuple(
        " ".join(f"{name}={shlex.quote(value) if value else value}" for name, value in one if value is not None)
        for one in rounds
    )
    return told if len(set(told)) == len(found) and all(told) else ()


def _chosen(name: str, text: str, find: Callable[[str], str | None], sources: Sources) -> list[tuple[str, str]]:
    """Return a script, of a file with several the one of the target that is asked for, else of the first that trains.

    Raises InputError where the first target starts no training and several others do.
    """
    if name not in sources.recipes:
        return [(name, text)]
    recipes, asked = sources.recipes[name]
    sources.assumed += recipes.assumed
    if asked is not None:
        if asked not in recipes.scripts:
            told = ", ".join(recipes.scripts) or "none"
            raise InputError(f"{name}: no target {asked!r} with commands (there are: {told})")
        return [(name, recipes.scripts[asked])]

    def trains(target: str) -> bool:
        outcome = follow(recipes.scripts[target], where=name, given=sources.overrides, find=find)
        owner = _owner(sources, outcome)
        return any(read_command(one, owner) is not None or starts_all(one) for one in outcome.started)

    def refused(target: str) -> bool:
        outcome = follow(recipes.scripts[target], where=name, given=sources.overrides, find=find)
        return any(unread_command(one.words) for one in outcome.started)

    if recipes.first in recipes.scripts and trains(recipes.first):
        return [(name, recipes.scripts[recipes.first])]
    found = [target for target in recipes.scripts if trains(target)]
    if len({recipes.scripts[target] for target in found}) > 1:
        raise InputError(f"{name}: targets {', '.join(found)} start trainings: say which, as --job {name}:{found[0]}")
    if found:
        sources.assumed.append(f"{name}: its target {found[0]}, the one that starts a training")
    target = found[0] if found else next(filter(refused, recipes.scripts), recipes.first)
    return [(name, recipes.scripts[target])] if target in recipes.scripts else []


def _finder(scripts: Sequence[tuple[str, str]], sources: Sources) -> Callable[[str], str | None]:
    """Return what finds a script by its path: among the given ones, the written ones, and the ones beside them."""

    def find(path: str) -> str | None:
        name = PurePath(shown(path)).name
        for known, text in [*scripts, *((PurePath(written).name, text) for written, text in sources.written.items())]:
            if known == name:
                return text
        given = next((one.path for one in sources.documents if one.name == name and one.path), None)
        named = PurePath(name).suffix in {"", ".sh", ".bash", ".env", ".slurm", ".sbatch", ".pbs"}  # `source env_vars`
        if not named and re.search(CONFIGURATION, name):
            near = Path(given) if given else nearby(sources.folder, path)
            return None if near is None else read_document(str(near))[1]
        beside = nearby(sources.folder, path) if named else None
        if beside is not None:
            if name not in sources.names:
                sources.names.append(name)
            return read_document(str(beside))[1]
        return None

    return find


def _owner(sources: Sources, outcome: ScriptOutcome) -> Owner:
    folder = _folder_of(sources, outcome)
    return sources.python_files.owner(sources.written | outcome.documents, folder, sources.documents)


def _folder_of(sources: Sources, outcome: ScriptOutcome) -> Path:
    """Return the folder in which a script starts its programs: the one that it went into, where that is at hand."""
    inside = {one.folder for one in outcome.started if programs_of([one]) or starts_all(one)}
    folder = sources.folder / inside.pop() if len(inside) == 1 else sources.folder
    return folder if folder.is_dir() else sources.folder


def _adopted(runs: _Runs, sources: Sources) -> tuple[str, Owner] | None:
    """Return the script whose program, of no engine by its name, runs the configuration given beside it, and that rule.

    None unless the files are of one engine and one program alone is started on all ranks.
    """
    given = sources.python_files.engine(sources.documents)
    if given is None:
        return None
    engine, file = given
    found = {
        (launch.program, launch.arguments): name
        for name, outcome in runs.outcomes.items()
        if name not in runs.called
        for one in outcome.started
        if (launch := read_command(one, lambda program, arguments: engine)) is not None
        and (starts_ranks(launch, one) or (sources.machines is not None and sources.machines.starts_ranks))
    }
    if len(found) != 1:
        return None
    (((program, _), name),) = found.items()
    sources.assumed.append(f"{shown(program)}, which {name} starts, is taken for what trains with {file}")
    return name, lambda own, arguments: engine if own == program else None


def _files_of(launch: Launch | None) -> set[str]:
    """Return the names of the configurations that a training command names."""
    words = () if launch is None else (*launch.options, *launch.arguments)
    return {PurePath(word.rpartition("=")[2]).name for word in words if word.endswith(CONFIG_SUFFIXES)}


def _files_of_others(outcome: ScriptOutcome, owner: Owner, chosen: Launch | None) -> set[str]:
    """Return the configurations of a script's other trainings, which the one that is chosen does not name."""
    named = [_files_of(launch) for launch in training_commands(outcome.started, owner)]
    return set().union(*named) - _files_of(chosen)


def _leave_out(files: set[str], sources: Sources) -> None:
    """Have files of other trainings be none of this job's."""
    sources.of_others = files
    sources.documents = [one for one in sources.documents if one.name not in files]
    sources.names[1:] = [name for name in sources.names[1:] if name not in files]


def _note_commands(runs: _Runs, sources: Sources) -> None:
    """Note what the scripts start beside a training that is known."""
    outcomes = runs.outcomes.values()
    sources.called_missing = [name for outcome in outcomes for name in outcome.called_missing]
    commands = [one.words for outcome in outcomes for one in outcome.started]
    launch = sources.launch
    if launch is None or not (launch.engine in READ or is_supervised(launch) or is_verls(launch)):
        sources.unread = next((told for words in commands if (told := unread_command(words))), None)
    for words in commands:
        found = yaml_of_command(words)
        if found is not None and PurePath(found[1]).name in sources.of_others:
            continue
        flags_alone = found is not None and "." not in found[1] and any(word.startswith("--") for word in words)
        if found is not None and sources.document(found[1]) is None and not (sources.launch and flags_alone):
            sources.wanted = sources.wanted or found
    if launch is not None:
        sources.lost = _lost([one for outcome in outcomes for one in outcome.started if one.words[0].startswith("--")])
        sources.notes += sources.lost
    named = (word.rpartition("=")[2] for words in commands for word in words)
    sources.python_words = list(dict.fromkeys(word for word in named if word.endswith(".py")))
    sources.programs = list(dict.fromkeys(name for outcome in outcomes for name in programs_of(outcome.started)))
    if sources.launch is None:
        sources.ranks_told = _ranks_told([one for outcome in outcomes for one in outcome.started], sources)
    if sources.launch is None and sources.programs and (sources.documents or sources.python_files.given):
        told = ", ".join(sources.programs[:3])
        sources.assumed.append(f"{told}: started beside the configuration, and taken to change nothing of it")


def _ranks_told(commands: Sequence[Started], sources: Sources) -> str:
    """Return in words the nodes and ranks of the first program that a launcher starts, "" where nothing says them."""
    launches = (read_command(one, lambda program, arguments: "huggingface") for one in commands)
    for found in filter(None, launches):
        launch = found
        with contextlib.suppress(InputError):  # where the two contradict each other, the command counts
            launch = found if sources.machines is None else on_machines(found, sources.machines)
        nodes, each, world = launch.nodes, launch.per_node, launch.counts.get("world")
        if nodes and each:
            return f"{nodes[1]} x {each[1]} = {nodes[0] * each[0]} ranks"
        if world or each:
            return (world or each or (0, ""))[1]
    return ""


def _lost(commands: Sequence[Started]) -> list[str]:
    """Return what says that lines of flags are commands of their own, as the shell takes them: one text a file."""
    files: dict[str, list[Started]] = {}
    for one in commands:
        files.setdefault(one.where, []).append(one)
    texts = []
    for where, lines in files.items():
        named = (re.match(r"--[\w.-]+", word) for one in lines for word in one.words)
        flags = ", ".join(dict.fromkeys(found[0] for found in named if found))
        more = f", and {len(lines) - 1} more below," if len(lines) > 1 else ""
        ends = "by a comment, an empty line, no backslash at the end of a line, or a variable of several lines"
        ended = f"the command before it had ended ({ends} in a text for a shell)"
        texts.append(f"{where}: line {lines[0].line}{more} begins with a flag, since {ended}: {flags} reach no program")
    return texts


def _keep(outcome: ScriptOutcome, sources: Sources) -> None:
    sources.variables |= {key: value for key, value in outcome.variables.items() if isinstance(value, str)}
    sources.written |= outcome.documents
    sources.applied |= outcome.manifests
    sources.tasks = outcome.tasks or sources.tasks
    sources.arguments |= outcome.arguments
    sources.seen_by_missing |= outcome.seen_by_missing
    for name in outcome.changed:  # the script's own text of it counts, not what it was before
        sources.documents = [one for one in sources.documents if one.name != name]
    sources.assumed += outcome.assumed
    sources.sourced_missing += outcome.sourced_missing
    for path in dict.fromkeys(outcome.sourced_missing):
        sources.assumed.append(f"{path} is sourced but is not here: its variables are taken as not set")
