"""The space of a search: Hydra's choices, ranges and intervals as Optuna's distributions. Needs Optuna."""

from collections.abc import Iterable, Mapping, Sequence

from hydra.core.override_parser.types import IntervalSweep, RangeSweep
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from fccl_mpi.config.compose import GROUPS, parse
from fccl_mpi.core.errors import UserError
from fccl_mpi.sweep.points import Settings, alternatives, combine


class Space:
    """What a search can try. A word on `seed` with several values is no axis: a trial is all of its seeds."""

    def __init__(self, words: Sequence[str], names: Mapping[str, Sequence[str]]) -> None:
        """Raises UserError where there is no axis."""
        self.axes: dict[str, BaseDistribution] = {}
        self._fixed: list[str] = []
        self._seeds: list[Settings] = [()]
        self._ends: list[tuple[str, str]] = []
        groups: list[list[Settings]] = []
        for word in words:
            override = parse(word)
            key, values = override.get_key_element(), override.value()
            if not override.is_sweep_override():
                self._fixed.append(word)
            elif isinstance(values, IntervalSweep):
                self.axes[key] = _between(values)
                self._ends.append((f"{key}={values.start}", f"{key}={values.end}"))
            elif key == "seed":
                self._seeds = [(other,) for other in alternatives(word, names)]
            else:
                others = alternatives(word, names)
                self.axes[key] = _one_of(values, [other.removeprefix(f"{key}=") for other in others])
                self._ends.append((others[0], others[-1]))
                if key in GROUPS:
                    groups.append([(other,) for other in others])
        if not self.axes:
            raise UserError("--search needs an axis, such as 'lr=tag(log,interval(1e-4,1e-2))'")
        self.choices = combine([[tuple(self._fixed)], *groups])
        """Every combination of groups."""

    def settings(self, proposal: Mapping[str, object]) -> list[Settings]:
        """A proposal's settings, for each seed."""
        return self._for_each_seed(f"{key}={value}" for key, value in proposal.items())

    def corners(self) -> list[Settings]:
        """Settings at the lower and at the upper end of all axes, for each seed."""
        return [settings for ends in zip(*self._ends, strict=True) for settings in self._for_each_seed(ends)]

    def _for_each_seed(self, words: Iterable[str]) -> list[Settings]:
        return combine([[tuple(self._fixed)], [tuple(words)], self._seeds])


def _between(interval: IntervalSweep) -> BaseDistribution:
    log, low, high = "log" in interval.tags, interval.start, interval.end
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log)
    assert low is not None and high is not None  # as Hydra's grammar has it
    return FloatDistribution(low, high, log=log)


def _one_of(values: object, words: Sequence[str]) -> BaseDistribution:
    """Steps of a range have an order, choices have none."""
    if isinstance(values, RangeSweep) and isinstance(values.start, int) and isinstance(values.step, int):
        low, high = sorted((int(words[0]), int(words[-1])))
        return IntDistribution(low, high, step=abs(values.step))
    return CategoricalDistribution(words)
