"""The paper's own numbers (paper.yaml), to stand beside a result and never in one."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from fccl_mpi.report.runs import Setting


def numbers(setting: Setting, table: str) -> dict[str, list[float]]:
    """Percent by method and participant, where the paper has this scenario, its domains and public set."""
    mine = _paper().get(setting.key["scenario"])
    if mine is None or mine["domains"] != setting.example.domains or setting.public != "cifar100":
        return {}
    return mine.get(f"homogeneous_{table}" if setting.key.get("homogeneous") else table, {})


def figure_numbers(setting: Setting, figure: str) -> dict[str, Any]:
    """Of Fig. 7 ("public_sets") or Fig. 8 ("continual"), by public set."""
    mine = _paper().get(setting.key["scenario"])
    return {} if mine is None or mine["domains"] != setting.example.domains else mine.get(figure, {})


def measure_of(setting: Setting) -> str:
    """top5" where the paper gives top-5 accuracy for the scenario, else "top1"."""
    wanted = _paper().get(setting.key["scenario"], {}).get("measure", "top1")
    runs = [run for variant in setting.variants for run in variant.runs.values()]
    return wanted if all(line.get(wanted) for run in runs for line in run.evaluated) else "top1"


@lru_cache
def _paper() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "paper.yaml").read_text("utf-8"))
