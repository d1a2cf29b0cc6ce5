"""Accuracies of a run by a stated rule, and their spread over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats

from fccl_mpi.report.runs import Run, Variant

CONFIDENCE = 0.95
RULES = {
    "final": "the last round",
    "best": "each run's best round by the mean of intra and inter, chosen on the test images: too kind",
    "last3": "the mean of the last three rounds that were evaluated",
}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A number over seeds."""

    mean: float
    std: float | None
    """Over n - 1; None for n = 1."""
    n: int


def accuracies(run: Run, measure: str, rule: str) -> np.ndarray:
    """Percent, (K, K): a row for each participant, a column for each test domain, by the rule."""
    matrices = np.array([line[measure] for line in run.evaluated], float)
    if rule == "best":
        return matrices[int(np.argmax([overall(matrix, run.domains) for matrix in matrices]))]
    return matrices[-3:].mean(0) if rule == "last3" else matrices[-1]


def intra(matrix: np.ndarray) -> np.ndarray:
    """Of each participant, (K,): accuracy on its own domain (Eq. 8)."""
    return matrix.diagonal()


def inter(matrix: np.ndarray, domains: Sequence[str]) -> np.ndarray:
    """Of each participant, (K,): mean accuracy on the other domains (Eq. 9), each once; NaN without any."""
    rows = []
    for row, own in zip(matrix, domains, strict=True):
        others = {domain: value for domain, value in zip(domains, row, strict=True) if domain != own}
        rows.append(float(np.mean(list(others.values()))) if others else np.nan)
    return np.array(rows)


def overall(matrix: np.ndarray, domains: Sequence[str]) -> float:
    """Mean of the intra- and the inter-domain mean; intra alone where there is one domain."""
    both = [intra(matrix).mean(), inter(matrix, domains).mean()]
    return float(np.nanmean(both))


def sample(values: Sequence[float]) -> Sample:
    """Mean and deviation over seeds."""
    array = np.asarray(values, float)
    return Sample(
        mean=float(array.mean()), std=float(array.std(ddof=1)) if len(array) > 1 else None, n=len(array)
    )


def confidence(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's t interval of the mean; None for fewer than two values."""
    found = sample(values)
    if found.std is None:
        return None
    half = float(_t_quantile(found.n - 1)) * found.std / found.n**0.5
    return found.mean - half, found.mean + half


def paired(one: Variant, other: Variant, of: str, measure: str, rule: str) -> list[float]:
    """Differences in the mean "intra" or "inter" accuracy, seed by seed that both have."""
    return [
        mean_of(one.runs[seed], of, measure, rule) - mean_of(other.runs[seed], of, measure, rule)
        for seed in sorted(one.runs.keys() & other.runs.keys())
    ]


def mean_of(run: Run, of: str, measure: str, rule: str) -> float:
    """A run's mean "intra", "inter" or "overall" accuracy."""
    matrix = accuracies(run, measure, rule)
    if of == "overall":
        return overall(matrix, run.domains)
    return float((intra(matrix) if of == "intra" else inter(matrix, run.domains)).mean())


@lru_cache
def _t_quantile(freedom: int) -> float:
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
