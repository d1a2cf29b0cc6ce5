"""From axes to points: runs of their own, all composed and checked before anything is written."""

import itertools
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, IntervalSweep
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fccl_mpi.config.compose import Composer, choices, parse
from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError
from fccl_mpi.store.folder import PRETRAINING_KEYS, RunFolder

Settings = tuple[str, ...]
"""Overrides of one run, each with one value."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run of a sweep, as it is started and found again."""

    name: str
    """Of its log and its state: `<method>-<config digest>-s<seed>`."""
    settings: Settings
    """Its overrides."""
    config_dir: str
    """Folder of the user's own choices, or empty."""
    folder: str
    """The run's folder: the same point is the same folder, whoever started it."""
    rounds: int
    ranks: int
    on_gpu: bool
    """Whether it may take GPUs."""

    @property
    def command_line(self) -> list[str]:
        """What follows `python -m fccl_mpi.run`."""
        return [*([f"--config-dir={self.config_dir}"] if self.config_dir else []), *self.settings]


class Points:
    """Makes points of settings; those of equal configuration digest are one."""

    def __init__(self, *, methods: Mapping[str, type], config_dir: Path | None) -> None:
        self.compose = Composer(methods=methods, config_dir=config_dir)
        self.config_dir = config_dir
        self._known: set[str] = set()

    def learn(self, combinations: Iterable[Settings]) -> None:
        """Take note of the keys that methods of this sweep have."""
        self._known.update(*(self.compose.keys(settings) for settings in combinations))

    def make(self, combinations: Sequence[Settings]) -> dict[Point, Config]:
        """Points with their configurations.

        A setting of one method is left out for the methods that do not have it, and what is the same then is
        one point. Raises UserError where a setting does not fit, or where two points are the same run.
        """
        self.learn(combinations)
        points: dict[Point, Config] = {}
        found: dict[str, Settings] = {}
        for settings in dict.fromkeys(self._fitting(settings) for settings in combinations):
            config = self.compose(settings)
            point = self.point(settings, config)
            if point.folder in found:
                raise UserError(
                    f"'{' '.join(settings)}' and '{' '.join(found[point.folder])}' are one and the same run "
                    f"({point.folder}): leave one out"
                )
            found[point.folder] = settings
            points[point] = config
        return points

    def point(self, settings: Settings, config: Config, prefix: str = "") -> Point:
        """The point of a composed configuration."""
        folder = RunFolder(config).path
        return Point(
            name=f"{prefix}{folder.parent.name}-{folder.name}",
            settings=settings,
            config_dir=str(self.config_dir or ""),
            folder=str(folder),
            rounds=config.rounds,
            ranks=len(config.participants) + 1,
            on_gpu=config.device != "cpu",
        )

    def pretraining(self, points: Mapping[Point, Config], begun: Container[Point]) -> dict[Point, Point]:
        """For each point that shares pretrained models with others, the run that makes them before it.

        None where one of those has ``begun``, and so has made them.
        """
        sharing: dict[str, list[Point]] = {}
        for point, config in points.items():
            sharing.setdefault(key_of_pretraining(config), []).append(point)
        found: dict[Point, Point] = {}
        for those in sharing.values():
            if len(those) > 1 and not any(point in begun for point in those):
                shared = [word for word in those[0].settings if parse(word).key_or_group != "method"]
                settings = (*(word for word in shared if not is_of_a_method(word)), "method=solo", "rounds=0")
                run = self.point(settings, self.compose(settings), "pretraining-")
                found |= dict.fromkeys(those, run)
        return found

    def _fitting(self, settings: Settings) -> Settings:
        """Without the settings that other methods of this sweep have and this one does not."""
        elsewhere = self._known - self.compose.keys(settings)
        return tuple(
            word for word in settings if not (is_of_a_method(word) and parse(word).key_or_group in elsewhere)
        )


def is_of_a_method(word: str) -> bool:
    """Whether an override sets something of the method, not which one it is."""
    return parse(word).key_or_group.startswith("method.")


def key_of_pretraining(config: Config) -> str:
    """Equal for configurations that find the same pretrained models.

    That is all `pretrained_path` depends on, with what the private images are drawn by instead of their
    digest, so that no image has to be read.
    """
    settings = asdict(config)
    keys = ("out", "data", "scenario", "task", "label_skew", *PRETRAINING_KEYS)
    kept = {key: settings[key] for key in keys}
    for own in settings["participants"].values():
        del own["local_epochs"]
    return json.dumps([kept, list(settings["participants"].items())])


def alternatives(word: str, names: Mapping[str, Sequence[str]]) -> list[str]:
    """The overrides that a word in Hydra's grammar stands for: those of its choice, range or glob.

    ``names`` are what each group can be. Raises UserError for an interval.
    """
    override = parse(word)
    if not override.is_sweep_override():
        return [word]
    key, values = override.get_key_element(), override.value()
    if isinstance(values, IntervalSweep):
        raise UserError(f"{word}: an interval is for --search; a grid takes choice(...) or range(...)")
    if not isinstance(values, Glob):
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    there = names.get(key, ())
    if not (found := values.filter(list(there))):
        raise UserError(f"{word}: no {key} is called so; there are: {', '.join(there) or 'none'}")
    return [f"{key}={name}" for name in found]


def names_of_groups(methods: Mapping[str, type], config_dir: Path | None) -> dict[str, list[str]]:
    """What each group can be, by a glob."""
    groups = {group: choices(group, config_dir) for group in ("scenario", "public", "preset", "method")}
    groups["method"] = list(dict.fromkeys([*methods, *groups["method"]]))
    return groups


def combine(axes: Iterable[Sequence[Settings]]) -> list[Settings]:
    """All combinations, the last axis fastest; additions and deletions first, to be composed only once."""
    combined = (itertools.chain.from_iterable(parts) for parts in itertools.product(*axes))
    return [tuple(sorted(words, key=lambda word: word[0] not in "+~")) for words in combined]


def read_axes(path: Path) -> tuple[list[str], list[Settings]]:
    """Words and explicit points of a file::

        axes:
          method: [fccl, fedmd]         # a list of values, or a string in Hydra's grammar
          seed: range(3)
        points:                         # each is taken with every combination of the axes
          - {rounds: 10, lr: 0.001}
          - {rounds: 20, lr: 0.0005}

    Raises UserError where it is anything else.
    """
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(path))
        if not isinstance(content, dict) or not content or set(content) - {"axes", "points"}:
            raise ValueError("it holds `axes:`, `points:` or both, and nothing else")
        axes, points = content.get("axes") or {}, content.get("points") or []
        if not isinstance(axes, dict) or not all(isinstance(point, dict) for point in points):
            raise ValueError("axes are `key: values`, and a point is `{key: value, ...}`")
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"--points {path} cannot be used: {str(error).splitlines()[0]}") from error
    words = [
        f"{key}=choice({','.join(map(_value, values))})" if isinstance(values, list) else _word(key, values)
        for key, values in axes.items()
    ]
    return words, [tuple(_word(key, value) for key, value in point.items()) for point in points]


def _word(key: str, value: object) -> str:
    return key if key.startswith("~") and value is None else f"{key}={_value(value)}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
