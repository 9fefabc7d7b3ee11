"""Words of a step that a rank has done: the training goes on after what stands before them."""

import re

MANY_STEPS = 3  # of any rank after an error without a rank: it was caught, and the training went on
WENT_ON = re.compile(  # not SLURM's word for a part of a job
    r"(?<!\*\*\* )(?<!\bjob )\b(?:step|epoch|iter(?:ation)?|loss)\b\D{0,12}\d", re.IGNORECASE
)
