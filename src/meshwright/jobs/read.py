"""The engine that files belong to, and the job that its reader makes of them."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

import msgspec

from ..errors import InputError
from .documents import read_document
from .engines import (
    automodel,
    bridge,
    foundry,
    huggingface,
    levanter,
    lightning,
    lingua,
    litgpt,
    maxtext,
    megatron,
    nanotron,
    nemo,
    nemo_rl,
    neox,
    olmo,
    picotron,
    torchtitan,
    torchtune,
)
from .engines.wrappers import unwrap
from .files.kubernetes import is_kubernetes, jobs_of_manifest
from .folders import configurations_of_folder, file_of_folder, is_folder, settings_of_folder
from .gather import gather_sources
from .job import Job
from .keys import dotted_keys
from .launch import STARTERS, Launch, of_environment, replaced_flags
from .model_choice import own_model
from .options import JobOptions
from .outside import without_rank
from .runs import SeveralTrainings
from .shell.marks import shown
from .signs import is_neox_together, of_document, of_python
from .sources import Sources
from .unrecognised import unrecognised
from .unsupported import HINT, unread_trainer

READERS: dict[str, Callable[[Sources, JobOptions], Job]] = {
    "megatron": megatron.read,
    "bridge": bridge.read,
    "nemo": nemo.read,
    "nemo_rl": nemo_rl.read,
    "automodel": automodel.read,
    "torchtitan": torchtitan.read,
    "huggingface": huggingface.read,  # DeepSpeed, Accelerate and plain FSDP
    "maxtext": maxtext.read,
    "levanter": levanter.read,
    "neox": neox.read,
    "foundry": foundry.read,
    "nanotron": nanotron.read,
    "picotron": picotron.read,
    "olmo": olmo.read,
    "lingua": lingua.read,
    "torchtune": torchtune.read,
    "litgpt": litgpt.read,
    "lightning": lightning.read,
}
NOT_SET = "is not set in the files"  # of a key whose value hangs on a variable
ROUNDS_TOLD = 8  # of a loop, by their variables
MOST_TRAININGS = 24  # of one script, that are compared


def read_job(items: Sequence[str], question: JobOptions | None = None) -> Job:
    """Return the job that files (and NAME=VALUE overrides) describe; InputError of one line for what is wrong.

    Of a script that starts several trainings, or a job array, the first where no price tells it from the others; of a
    folder the file that alone starts one.
    """
    try:
        folder = next((item for item in items if is_folder(item)), None)
        if folder is not None:
            return _job_of_folder(folder, items, question)
        try:
            sources = gather_sources(items)
        except SeveralTrainings:
            if (found := _only_object(items, question or JobOptions())) is None:
                raise
            return found
        if len(sources.tasks) > 2:  # a variable and its values
            return _only_task(items, sources, question or JobOptions())
        if sources.trainings:
            return _only_job(items, sources, question or JobOptions())
        return _job_of(sources, question or JobOptions())
    except InputError as error:
        raise InputError(shown(str(error))) from None


def _job_of_folder(folder: str, items: Sequence[str], question: JobOptions | None) -> Job:
    """Return the job of the file that alone starts a training in a folder."""
    others = [*(item for item in items if item != folder), *settings_of_folder(folder)]

    def is_engines(sources: Sources) -> bool:
        try:
            return bool(reader_name(sources))
        except InputError:
            return False

    file = file_of_folder(folder, lambda path: gather_sources([path, *others]), is_engines)
    job = read_job([file, *others], question)
    return msgspec.structs.replace(job, assumed=(f"{folder}: {PurePath(file).name} is the job of it", *job.assumed))


def _job_of(sources: Sources, question: JobOptions) -> Job:
    unwrap(sources)
    open_places = _places_asked(sources)
    sources.notes += [open_places] if open_places else []
    asked = msgspec.structs.replace(question, own=own_model(sources), folder=str(sources.folder))
    try:
        name = reader_name(sources)
        sources.launch = sources.launch or _launch_of_missing(sources, name)
        job = READERS[name](sources, asked)
    except InputError as error:
        told = f"{error}{_arguments_asked(sources)}" if NOT_SET in str(error) else str(error)
        told = "; ".join([told, *sources.lost])
        raise InputError(f"{told}; {open_places}" if open_places else told) from None
    notes = job.notes
    if any(re.search(rf"\${name}\b", note) for note in notes for name in sources.arguments):
        notes = (*notes, *filter(None, [_arguments_asked(sources).removeprefix("; ")]))
    if sources.launch is not None and question.gpus is None and job.world is not None:
        notes = (*notes, *filter(None, [without_rank(sources.launch, sources.machines, job.world)]))
    replaced = [] if sources.launch is None else replaced_flags(sources.launch.arguments)
    notes = (*notes, *_other_accelerator(sources), *replaced)
    return msgspec.structs.replace(job, machines=sources.machine_type, part_of_gpu=sources.part_of_gpu, notes=notes)


def _other_accelerator(sources: Sources) -> tuple[str, ...]:
    """Return in words that a script is written for accelerators of another maker, by the variables that it sets."""
    seen = {} if sources.launch is None else sources.launch.environment
    name = next((name for name in seen if re.match("ASCEND_|HCCL_", name)), None)
    return () if name is None else (f"{name}: the script is written for Ascend NPUs; priced on the cluster asked for",)


def _launch_of_missing(sources: Sources, engine: str) -> Launch | None:
    """Return what a script that is not here is taken to start: the ranks that variables it would see say; else None.

    So Primus's run_pretrain.sh takes them, and many a wrapper of one's own.
    """
    if not sources.called_missing:
        return None
    program, variables = sources.called_missing[-1], sources.seen_by_missing
    name = next((name for name in ("GPUS_PER_NODE", "NPROC_PER_NODE") if name in variables), "NPROC_PER_NODE")
    counts, doubts = of_environment(variables, name)
    if "per_node" not in counts:
        return None
    told = " and ".join(words for _, words in counts.values())
    sources.assumed.append(f"{program}, which is not here, starts what {told} say: one rank on each GPU")
    return Launch(engine, program, (), "torchrun", counts=counts, unknown=tuple(doubts), where=sources.names[0])


def _places_asked(sources: Sources) -> str:
    """Return in words what is not filled in in a template, "" where nothing is left open."""
    if sources.unfilled is None:
        return ""
    name, places = sources.unfilled
    words = " ".join(f"{place}=VALUE" for place in places)
    return f"{name} is a template that is not filled in: --job {words} fills it"


def _arguments_asked(sources: Sources) -> str:
    """Return what asks for the arguments of a script that is given none, "" where it wants none."""
    script = next((name for name in sources.names if name.endswith((".sh", ".bash", ".slurm", ".sbatch"))), None)
    if not sources.arguments or script is None:
        return ""
    wanted = ", ".join(f"${name}" + (f" ({told})" if told else "") for name, told in sorted(sources.arguments.items()))
    beside = configurations_of_folder(sources.folder)
    here = f" (configurations here: {', '.join(beside)})" if beside else ""
    return f'; {script} is not given {wanted}: --job "bash {script} WORD ..." says its arguments{here}'


def _only_job(items: Sequence[str], sources: Sources, question: JobOptions) -> Job:
    """Return the job that all trainings of a script are; InputError where they differ in what is priced."""
    told, count = sources.trainings, len(sources.trainings)
    lines = ", ".join(dict.fromkeys(told))
    several = f"{sources.names[0]}: starts {count} different training commands ({lines})"
    choice = f"expected one: --job {sources.names[0]}:{told[-1].partition(':')[0].removeprefix('line ')} names it"
    if len(set(told)) == 1:  # of a loop, whose rounds have the same line
        choice = _choice_of_round(sources)
    if count > MOST_TRAININGS:
        raise InputError(f"{several}; {choice}")
    jobs, errors = [], []
    for place in range(count):
        try:
            jobs.append(_job_of(gather_sources(items, place=place) if place else sources, question))
        except InputError as error:
            errors.append(str(error))
    if len(errors) == count and len(set(errors)) == 1:
        raise InputError(errors[0])
    if errors:
        raise InputError(f"{several}; {choice} ({errors[0]})")
    if difference := _difference(jobs):
        raise InputError(f"{several}, of {difference}; {choice}")
    alike = f"{sources.names[0]} starts {count} trainings ({lines}), which differ in nothing that is priced"
    return msgspec.structs.replace(jobs[0], assumed=(alike, *jobs[0].assumed))


def _choice_of_round(sources: Sources) -> str:
    """Return what asks for one round of a loop, with all that there are; where its variables tell none, no words."""
    rounds = sources.rounds
    if not rounds:
        return "expected one"
    more = f" and {len(rounds) - ROUNDS_TOLD} more" if len(rounds) > ROUNDS_TOLD else ""
    told = ", ".join(f"({one})" for one in rounds[:ROUNDS_TOLD])
    return f"expected one of {told}{more}: --job {sources.names[0]} {rounds[0]} names it"


def _only_task(items: Sequence[str], sources: Sources, question: JobOptions) -> Job:
    """Return the job that all tasks of an array are; InputError where they differ in what is priced.

    Of an array of more than MOST_TRAININGS the first and last tasks are compared.
    """
    own, (name, *tasks) = sources.names[0], sources.tasks
    if len(tasks) > MOST_TRAININGS:
        tasks = tasks[: MOST_TRAININGS // 2] + tasks[-MOST_TRAININGS // 2 :]
    jobs: list[Job] = []
    errors: list[str] = []
    for task in tasks:
        try:
            jobs.append(read_job([*items, f"{name}={task}"], question))
        except InputError as error:
            errors.append(str(error))
    if len(errors) == len(tasks) and len(set(errors)) == 1:
        raise InputError(errors[0])
    several = f"{own}: is a job array, whose tasks {tasks[0]} to {tasks[-1]}"
    choice = f"expected one: --job {name}={tasks[0]} names it"
    if errors:
        raise InputError(f"{several} are different trainings; {choice} ({errors[0]})")
    if told := _difference(jobs):
        raise InputError(f"{several} are trainings of {told}; {choice}")
    alike = f"{own}: the tasks {tasks[0]} to {tasks[-1]} of its job array differ in nothing that is priced"
    return msgspec.structs.replace(jobs[0], assumed=(alike, *jobs[0].assumed))


def _only_object(items: Sequence[str], question: JobOptions) -> Job | None:
    """Return the job that all objects of a manifest are; None where no manifest has several.

    Raises InputError where they differ in what is priced.
    """
    for place, item in enumerate(items):
        if not item.lower().endswith((".yaml", ".yml")) or not is_kubernetes(text := read_document(item)[1]):
            continue
        own = PurePath(item).name
        names = list(dict.fromkeys(jobs_of_manifest(own, text)))
        if len(names) < 2:
            continue
        rest = [*items[:place], *items[place + 1 :]]
        several = f"{own}: holds {len(names)} trainings, {_joined(names)}"
        choice = f"expected one: --job {own}:{names[0]} names it"
        if len(names) > MOST_TRAININGS:
            raise InputError(f"{several}; {choice}")
        try:
            jobs = [read_job([f"{item}:{name}", *rest], question) for name in names]
        except InputError as error:
            raise InputError(f"{several}; {choice} ({error})") from None
        if told := _difference(jobs):
            raise InputError(f"{several}, of {told}; {choice}")
        return msgspec.structs.replace(jobs[0], assumed=(f"{several}, alike in what is priced", *jobs[0].assumed))
    return None


def _difference(jobs: Sequence[Job]) -> str:
    """Return the first thing priced in which jobs differ, with its values, "" where they are alike."""
    first = _priced(jobs[0])
    for mine in map(_priced, jobs[1:]):
        for name, value in sorted(mine.items(), key=lambda pair: pair[0] != "architecture"):  # a model tells most
            if value != first.get(name) and name == "architecture":
                return f"the models {_joined(dict.fromkeys(job.model_name or 'of other sizes' for job in jobs))}"
            if value != first.get(name):
                return f"{name} {_joined(dict.fromkeys(str(_priced(job).get(name)) for job in jobs))}"
    return ""


def _joined(words: Iterable[str]) -> str:
    """Return words as a sentence lists them: "1, 2 and 4"."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _priced(job: Job) -> dict[str, object]:
    """Return what a price depends on, by its name."""
    built = msgspec.to_builtins(job)
    for remarks in ("assumed", "ignored", "notes", "recompute_text", "files"):
        built.pop(remarks)
    return {**built.pop("layout"), **built}


def reader_name(sources: Sources) -> str:
    """Return the reader for these files; InputError where they are of several engines or of none."""
    found: dict[str, str] = {}
    if sources.unread is not None:
        raise InputError(f"{sources.names[0]}: this starts {sources.unread}, which is not read: {HINT}")
    if sources.launch is not None:
        found[sources.launch.engine] = sources.launch.where
    if sources.python is not None:
        engine = of_python(sources.python_text)
        if engine:
            found.setdefault(engine, sources.python[0])
    if is_neox_together(sources.documents):
        found.setdefault("neox", sources.documents[0].name)
    for document in [] if "neox" in found else sources.documents:
        if other := unread_trainer(document.keys, dotted_keys(document.data)):
            raise InputError(f"{document.name}: this is a configuration of {other}, which is not read: {HINT}")
        engine = of_document(document)
        if engine and not (sources.launch is not None and _goes_with(engine, sources.launch.engine)):
            found.setdefault(engine, document.name)
    if len(found) > 1:
        told = " and ".join(f"{name} ({engine})" for engine, name in found.items())
        raise InputError(f"{told}: are configurations of different engines; expected one job")
    alone = sources.launch is None or sources.launch.program.rpartition("/")[2] in STARTERS
    if sources.wanted is not None and (not found or (alone and not sources.documents)):
        own, (trainer, name) = sources.names[0], sources.wanted
        raise InputError(f"{own}: starts {trainer} with {shown(name)}, which is not here: give it too")
    if not found:
        raise unrecognised(sources)
    return next(iter(found))


def _goes_with(document: str, launched: str) -> bool:
    """Whether a document is one that a launched engine reads beside its own (DeepSpeed's of a Megatron script)."""
    return document == "huggingface" and launched in {"megatron", "neox", "foundry"}
