"""From presets and overrides to one checked Config, by Hydra's Compose API."""

import difflib
import hashlib
import itertools
import json
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fccl_mpi.config.schema import Config
from fccl_mpi.core.errors import UserError

PRESETS = Path(__file__).parent / "presets"
GROUPS = ("scenario", "method", "public", "preset")

# What may change between two starts of one run: none of it bears on the numbers already made.
FREE_KEYS = ("rounds", "out", "data", "device", "threads", "resume", "checkpoint_every", "keep", "preset")


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
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for name, method in methods.items():
        store.store(group="method", name=name, node=method(name=name))
    words = _parse(overrides)
    path = [] if config_dir is None else [f"hydra.searchpath=[file://{config_dir.resolve()}]"]
    with initialize_config_dir(str(PRESETS), version_base="1.3"):
        chosen = [text for text, key, _ in words if key in GROUPS]
        defaults = _try_compose([*path, *chosen])
        own_method = _own_method(defaults, words)
        if own_method is not None:
            defaults.method = own_method
        known = _flat_keys(defaults)
        for text, key, _ in words:
            if key not in known and key not in GROUPS and not text.startswith("+"):
                raise UserError(f"{text}: there is no key {key!r}; {_nearest(key, [*known, *GROUPS])}")
        forced = "" if own_method is None else "++"  # its file need not name every field
        composed = _try_compose(
            [*path, *(forced + text if key.startswith("method.") else text for text, key, _ in words)]
        )
    try:
        if own_method is not None:
            del composed.method.target
            composed.method = OmegaConf.merge(own_method, composed.method)
        config: Config = OmegaConf.to_object(composed)  # type: ignore[assignment]
    except OmegaConfBaseException as error:
        raise _user_error(error) from error
    for key in set(_flat_keys(composed)) - set(_flat_keys(OmegaConf.structured(config))):
        raise UserError(f"+{key}: there is no key {key!r}; {_nearest(key, [*known, *GROUPS])}")
    return config


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
    return OmegaConf.to_container(OmegaConf.structured(config))  # type: ignore[return-value]


def choices(group: str, config_dir: Path | None = None) -> list[str]:
    """The names that ``group=`` takes from files."""
    folders = [folder / group for folder in (PRESETS, config_dir) if folder is not None]
    return sorted(file.stem for folder in folders for file in folder.glob("*.yaml"))


def _try_compose(overrides: list[str]) -> DictConfig:
    try:
        return hydra_compose("config", overrides=overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise _user_error(error) from error


def _parse(overrides: Sequence[str]) -> list[tuple[str, str, Any]]:
    """Each override as written, with its key and its value."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError(f"{_first_line(error)}: settings are written key=value") from error
    return [(text, word.key_or_group, word.value()) for text, word in zip(overrides, parsed, strict=True)]


def _own_method(defaults: DictConfig, words: list[tuple[str, str, Any]]) -> DictConfig | None:
    """A user's own method, whose file in ``--config-dir`` names its dataclass as ``target: module:Class``."""
    target = defaults.method.get("target")
    if target is None:
        return None
    name = next(value for _, key, value in reversed(words) if key == "method")
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
