"""Partitions of GPUs: what the files of a job ask for where a rank is given a part of a GPU, and not a whole one.

Sources: NVIDIA's MIG user guide (profiles such as 3g.40gb: 3 of 7 slices of compute, 40 GB; a process of CUDA sees one
instance) and GPU operator (`nvidia.com/mig-*`, of whole nodes `gpu.product: ...-MIG-1g.10gb`; time slices are
`gpu.shared`, or a product that ends in -SHARED); slurm.schedmd.com/gres.html (`gpu:a100_3g.20gb:2`); NVIDIA's KAI
scheduler (`gpu-fraction`, `gpu-memory`); HAMi (`nvidia.com/gpumem`).
"""

import re

PROFILE = r"\d{1,2}[gc]\.\d{1,3}gb(?:\+me)?"
PARTS = re.compile(
    rf"(?P<mig>nvidia\.com/mig-{PROFILE}|[\w-]*MIG-{PROFILE}|gpu:(?:[\w-]+[_.-])?{PROFILE}|=[\"']?MIG-[\w-]{{8,}})"
    r"|(?P<shared>nvidia\.com/gpu\.shared|gpu\.product:\s*\S+-SHARED\b)"
    r"|(?P<fraction>gpu-fraction[\"']?:\s*[\"']?0?\.\d+|gpu-memory[\"']?:\s*[\"']?\d+|nvidia\.com/gpumem[\w-]*)"
)
KINDS = {"mig": "an instance of MIG", "shared": "a time slice", "fraction": "a fraction"}
DIRECTIVE = re.compile(r"^[ \t]*#(?!(?:SBATCH|PBS|BSUB)\b).*$|[ \t]#.*$", re.MULTILINE)


def part_of_gpu(text: str) -> str:
    """Return in words the part of a GPU that a manifest or script asks for, "" where it asks for whole ones."""
    found = PARTS.search(DIRECTIVE.sub("", text))
    if found is None:
        return ""
    return f"{found[0].lstrip('=').strip(chr(34))}, {KINDS[str(found.lastgroup)]} of a GPU"
