"""The fake device for whole programs: torch loads it in every process that has the environment returned here."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def installed(folder: Path) -> dict[str, str]:
    """Write a package of no code into `folder` that torch takes for the support of a device; return the environment.

    It is the way of every device that is not part of torch: an entry point, which `import torch` calls.
    """
    package = folder / "fakegpu-0.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: fakegpu\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[torch.backends]\nfakegpu = testkit.fake:load\n")
    path = [str(folder.resolve()), str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}
