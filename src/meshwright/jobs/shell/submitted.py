"""Scripts that are handed to a batch system: what `sbatch` and `qsub` set for them beside what stands in them.

Sources: sbatch(1) (--export; options of the command count before the #SBATCH lines) and PBS Professional's qsub(1B)
(`-v NAME=VALUE,NAME`, `-V`, `-l select=N:mpiprocs=M`; a script sees none of the environment but what these say).
"""

import itertools
import re
from collections.abc import Mapping, Sequence

from ..allocation import sge_variables
from ..slurm import array_variables, directives

SUBMITS = frozenset({"sbatch", "qsub"})
NAMED = re.compile(r"[A-Za-z_]\w*$")
MOST_NODES = 10**6
SELECT = re.compile(r"(?:^|,)select=(\d{1,7})((?::\w+=[\w.]+)*)(?=,|$)")
OLD = re.compile(r"(?:^|,)nodes=(\d{1,7})((?::\w+=[\w.]+)*)(?=,|$)")


def submitted(fields: Sequence[str], path: str, seen: Mapping[str, str]) -> tuple[dict[str, str], bool] | None:
    """Return the variables that a command sets for the script at `path`, and whether it sees the environment too.

    `seen` are the variables that the command sees. None where it hands the script to no batch system.
    """
    places = [place for place, word in enumerate(fields) if word.rpartition("/")[2] in SUBMITS]
    if not places or path not in fields[places[0] :]:
        return None
    options = list(fields[places[0] + 1 : fields.index(path, places[0])])
    if fields[places[0]].rpartition("/")[2] == "qsub":
        texts = _values(options, "-v")
        named = [word for text in texts for word in text.split(",")]
        arrays = [array_variables("PBS_ARRAY_INDEX", text) for text in _values(options, "-J")]
        resources = _values(options, "-l")
        asked = pbs_variables(resources) | sge_variables(resources) | (arrays[-1] if arrays else {})
        return asked | _chosen(named, seen), "-V" in options
    words = ",".join(_values(options, "--export")).split(",")
    keeps = not _values(options, "--export") or "ALL" in words
    own = directives(f"#SBATCH {' '.join(options)}")
    return own | _chosen(words, seen), keeps


def _values(options: Sequence[str], flag: str) -> list[str]:
    """Return what stands behind a flag, each time that it is there."""
    found = [word.partition("=")[2] for word in options if flag.startswith("--") and word.startswith(f"{flag}=")]
    return found + [later for word, later in itertools.pairwise(options) if word == flag]


def _chosen(words: Sequence[str], seen: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that words such as NAME=VALUE and NAME say."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if NAMED.match(name) and (equals or name in seen):
            found[name] = value.strip("\"'") if equals else seen[name]
    return found


def pbs_variables(asked: Sequence[str]) -> dict[str, str]:
    """Return the numbers of nodes and of lines of the nodefile that resources such as select=4:mpiprocs=8 make."""
    for text in asked:
        match = SELECT.search(text) or OLD.search(text)
        if match and 0 < (nodes := int(match[1])) <= MOST_NODES:
            lines = re.search(r":(?:mpiprocs|ppn)=(\d{1,4})", match[2])
            return {"PBS_NUM_NODES": str(nodes), "PBS_NP": str(nodes * int(lines[1] if lines else 1))}
    return {}


def pbs_directives(text: str) -> dict[str, str]:
    """Return the variables that the #PBS lines of a script make."""
    arrays = re.findall(r"^#PBS[ \t]+-J[ \t]+([\d:-]+)", text, re.MULTILINE)
    tasks = array_variables("PBS_ARRAY_INDEX", arrays[-1]) if arrays else {}
    return pbs_variables(re.findall(r"^#PBS[ \t]+-l[ \t]+(\S+)", text, re.MULTILINE)) | tasks
