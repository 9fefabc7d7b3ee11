"""Words of a step that a rank has done: the training goes on after what stands before them."""

import re

MANY_STEPS = 3  # of any rank after an error without a rank: it was caught, and the training went on
WENT_ON = re.compile(  # not SLURM's word for a part of a job
    r"(?<!\*\*\* )(?<!\bjob )\b(?:step|epoch|iter(?:ation)?|loss)\b\D{0,12}\d", re.IGNORECASE
)
_OF_ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\b(?:[Uu]nhandled|[Uu]ncaught) (?:exception|error)\b")


def is_of_error(text: str) -> bool:
    """Whether a program's logger wrote a line as an error."""
    return _OF_ERROR.search(text) is not None


def is_step(text: str) -> bool:
    """Whether a line tells of a step that was made, and not of the one in which an error came."""
    return WENT_ON.search(text) is not None and not is_of_error(text)
