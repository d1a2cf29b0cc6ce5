"""From presets and overrides to one checked Config, by Hydra's Compose API."""

import difflib
import hashlib
import itertools
import json
import pickle
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError

PRESETS = Path(__file__).parent / "presets"
GROUPS = ("scenario", "method", "public", "preset")

# What may change between two starts of one run: none of it bears on the numbers already made.
FREE_KEYS = (
    *("rounds", "out", "data", "device", "threads", "resume", "checkpoint_every", "keep", "preset"),
    *("stop_after", "timeout", "on_nonfinite", "diagnostics", "tensorboard"),
    *("gpu_aware_mpi", "evaluate_every", "recompute"),
)


def compose(
    overrides: Sequence[str], *, methods: Mapping[str, type], config_dir: Path | None = None
) -> Config:
    """Compose and check a configuration.

    Args:
        overrides: Hydra overrides, such as ``["method=solo", "participants.mnist.width=0.5"]``.
        methods: the dataclass of every method by name.
        config_dir: a user's own groups, searched beside the package's.

    Raises:
        UserError: an unknown key or choice (the nearest is named) or a value that does not fit.
    """
    return Composer(methods=methods, config_dir=config_dir)(overrides)


class Composer:
    """Composes many configurations, hundreds a second.

    Hydra takes its time to bring together the files of the chosen groups, so that is done once for each
    choice; the values that follow are laid over a copy, as Hydra itself would.
    """

    def __init__(self, *, methods: Mapping[str, type], config_dir: Path | None = None) -> None:
        self._path = [] if config_dir is None else [f"hydra.searchpath=[file://{config_dir.resolve()}]"]
        self._composed: dict[tuple[str, ...], bytes] = {}
        self._keys: dict[tuple[str, ...], set[str]] = {}
        self._without_strangers: set[tuple[str, ...]] = set()  # additions that were seen to name known keys
        store = ConfigStore.instance()
        store.store(name="schema", node=Config)
        for name, method in methods.items():
            store.store(group="method", name=name, node=method(name=name))

    def __call__(self, overrides: Sequence[str]) -> Config:
        """Compose and check one; raises UserError as `compose` does."""
        words = [parse(text) for text in overrides]
        known = self.keys(overrides)
        for word in words:
            text, key = str(word.input_line), word.key_or_group
            if word.is_sweep_override():
                raise UserError(f"{text}: a run takes one value; python -m fccl_mpi.sweep takes several")
            if key not in known and key not in GROUPS and not text.startswith("+"):
                raise UserError(f"{text}: there is no key {key!r}; {_nearest(key, [*known, *GROUPS])}")
        # Additions and deletions are left to Hydra, with what is written before them.
        last = max((place for place, word in enumerate(words) if _adds_or_deletes(word)), default=-1)
        for_hydra: list[str] = []
        values = []
        for place, word in enumerate(words):
            early = place < last and not word.key_or_group.startswith("method.")
            if word.key_or_group in GROUPS or _adds_or_deletes(word) or early:
                for_hydra.append(str(word.input_line))
            else:
                values.append(word)
        composed = self._compose(for_hydra)
        for word in values:
            try:
                OmegaConf.update(composed, word.key_or_group, word.value())
            except OmegaConfBaseException as error:
                raise UserError(f"{word.input_line}: {_first_line(error)}") from error
        try:
            config: Config = OmegaConf.to_object(composed)  # type: ignore[assignment]
        except OmegaConfBaseException as error:
            raise _user_error(error) from error
        adds = any(word.is_add() or word.is_force_add() for word in words)
        if adds and tuple(for_hydra) not in self._without_strangers:
            for key in set(_flat_keys(composed)) - set(_flat_keys(OmegaConf.structured(config))):
                raise UserError(f"+{key}: there is no key {key!r}; {_nearest(key, [*known, *GROUPS])}")
            self._without_strangers.add(tuple(for_hydra))
        return config

    def keys(self, overrides: Sequence[str]) -> set[str]:
        """All keys that there are with the groups which the overrides choose."""
        choices = tuple(text for text in overrides if parse(text).key_or_group in GROUPS)
        if choices not in self._keys:
            self._keys[choices] = set(_flat_keys(self._compose(choices)))
        return self._keys[choices]

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        """What Hydra makes of groups, additions and deletions; a user's own method with its types.

        A copy for each call, through pickle: five times as fast as ``copy.deepcopy`` is here.
        """
        key = tuple(overrides)
        if key not in self._composed:
            with initialize_config_dir(str(PRESETS), version_base="1.3"):
                composed = _try_compose([*self._path, *overrides])
            own_method = _own_method(composed, overrides)
            if own_method is not None:
                del composed.method.target
                try:
                    composed.method = OmegaConf.merge(own_method, composed.method)
                except OmegaConfBaseException as error:
                    raise _user_error(error) from error
            self._composed[key] = pickle.dumps(composed)
        return pickle.loads(self._composed[key])


@cache
def parse(text: str) -> Override:
    """A word of the command line in Hydra's override grammar. Raises UserError where it is none."""
    try:
        return OverridesParser.create().parse_overrides([text])[0]
    except HydraException as error:
        raise UserError(f"{_first_line(error)}: settings are written key=value") from error


def _adds_or_deletes(word: Override) -> bool:
    return word.is_add() or word.is_force_add() or word.is_delete()


def to_yaml(config: Config) -> str:
    """The full configuration as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def digest(config: Config) -> str:
    """Hex sha256 of everything in the configuration that bears on a run's numbers."""
    settings = to_dict(config)
    for key in FREE_KEYS:
        del settings[key]
    settings["participants"] = list(settings["participants"].items())  # their order is the ranks'
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def to_dict(config: Config) -> dict[str, Any]:
    """The full configuration as plain dicts, lists, strings and numbers."""
    return asdict(config)


def choices(group: str, config_dir: Path | None = None) -> list[str]:
    """The names that ``group=`` takes from files."""
    folders = [folder / group for folder in (PRESETS, config_dir) if folder is not None]
    return sorted(file.stem for folder in folders for file in folder.glob("*.yaml"))


def _try_compose(overrides: list[str]) -> DictConfig:
    try:
        return hydra_compose("config", overrides=overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise _user_error(error) from error
    except (ValueError, TypeError, OSError) as error:  # of a choice that is no word, or no name of a file
        raise UserError(f"{' '.join(overrides)}: {_first_line(error)}") from error


def _own_method(defaults: DictConfig, overrides: Sequence[str]) -> DictConfig | None:
    """A user's own method, whose file in ``--config-dir`` names its dataclass as ``target: module:Class``."""
    target = defaults.method.get("target")
    if target is None:
        return None
    name = next(word.value() for word in map(parse, overrides) if word.key_or_group == "method")
    try:
        method = pkgutil.resolve_name(target)(name=name)
        return OmegaConf.structured(method)
    except (ImportError, AttributeError, ValueError, TypeError, OmegaConfBaseException) as error:
        raise UserError(
            f"method={name}: its target {target!r} is no dataclass that can be imported ({error}): "
            "write it as my_package.my_module:MyMethod, and let Python find it (PYTHONPATH)"
        ) from error


def _flat_keys(node: DictConfig, prefix: str = "") -> list[str]:
    keys = []
    for key in node:
        path = f"{prefix}{key!s}"
        keys.append(path)
        if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
            keys += _flat_keys(node[key], f"{path}.")
    return keys


def _nearest(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else "--help lists all keys"


def _user_error(error: Exception) -> UserError:
    """Hydra's and OmegaConf's errors in one sentence: the override, the reason, the nearest choice."""
    head, *rest = [line.strip() for line in str(error).strip().splitlines()]
    reason = head.removeprefix("Error merging override ").removeprefix("In 'config': ").rstrip(".: ")
    if error.__cause__ is not None:
        reason = f"{reason}: {_first_line(error.__cause__)}"
    for number, line in enumerate(rest):
        if line.startswith("full_key:"):
            reason = f"{reason} (key {line.removeprefix('full_key:').strip()})"
        elif line.startswith("Available options in"):
            options = list(
                itertools.takewhile(lambda option: option != "Config search path:", rest[number + 1 :])
            )
            near = difflib.get_close_matches(reason.rsplit("/", 1)[-1].strip("'"), options, n=1)
            hint = f"did you mean {near[0]!r}? There are: " if near else "there are: "
            reason = f"{reason}; {hint}{', '.join(options)}"
    return UserError(reason)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".: ")
