"""Run folders, read and told apart: what can be averaged with what, and what cannot be used at all.

A *setting* is all of a configuration but method, seed and what does not bear on numbers; runs of one
setting may be compared. A *variant* is a method with its own parameters; its runs differ in the seed alone.
"""

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fccl_mpi.config.compose import FREE_KEYS
from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.store.diagnostics import recorded_round

# What a SOLO run without further training does not depend on: it serves every such setting as baseline.
NOT_OF_SOLO = (
    "public",
    "exchange",
    "aggregate",
    "public_size",
    "public_batch_size",
    "public_epochs",
    "rounds",
)
NEEDED = ("scenario", "task", "method", "participants", "public", "seed", "rounds")

Flat = dict[str, Any]


@dataclass(kw_only=True)
class Run:
    """A run folder: its configuration and its rounds."""

    path: Path
    config: dict[str, Any]
    rounds: list[dict[str, Any]]
    """Lines of metrics.jsonl."""
    status: str = "finished"
    """Or "unfinished", "failed", "foreign", "duplicate"."""
    reason: str = ""
    """Why it is not used."""

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.config["method"]["name"]

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.config["seed"]

    @property
    def names(self) -> list[str]:
        """The participants in rank order."""
        return list(self.config["participants"])

    @property
    def domains(self) -> list[str]:
        """Their domains."""
        return [own.get("domain") or name for name, own in self.config["participants"].items()]

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The rounds that have accuracies; see ``evaluate_every``."""
        return [line for line in self.rounds if line["top1"] is not None]

    @property
    def has_diagnostics(self) -> bool:
        """Whether there are some, of the last round."""
        return bool(self.rounds) and recorded_round(self.path) == self.rounds[-1]["round"]

    def setting(self) -> Flat:
        """All that a run must share with another to be compared with it."""
        shared = {
            key: value for key, value in self.config.items() if key not in (*FREE_KEYS, "method", "seed")
        }
        return flat(shared) | {"order of participants": tuple(self.names), "rounds": self.config["rounds"]}

    def stands_alone(self) -> bool:
        """Whether it is SOLO as pretrained, which nothing public bears on."""
        return self.method == "solo" and not self.config["method"].get("keep_training", False)


@dataclass(kw_only=True)
class Variant:
    """A method with certain parameters, and its runs by seed."""

    method: str
    label: str
    parameters: Flat
    runs: dict[int, Run] = field(default_factory=dict)

    @property
    def is_base(self) -> bool:
        """Whether it is the method itself, and not one of its variants."""
        return self.label == self.method


@dataclass(kw_only=True)
class Setting:
    """Runs that may be compared, by variant, in the order of the paper's tables."""

    key: Flat
    variants: list[Variant]
    title: str = ""
    slug: str = ""

    @property
    def example(self) -> Run:
        """Any of its runs, preferably no borrowed SOLO."""
        runs = [run for variant in self.variants for run in variant.runs.values()]
        return next((run for run in runs if not run.stands_alone()), runs[0])

    @property
    def seeds(self) -> list[int]:
        """All seeds of any variant."""
        return sorted({seed for variant in self.variants for seed in variant.runs})

    @property
    def public(self) -> str:
        """Name of the public set."""
        return self.key["public.name"]

    def base(self, method: str) -> Variant | None:
        """The method itself, or None where it was not run."""
        return next((v for v in self.variants if v.is_base and v.method == method), None)

    def missing(self) -> Iterator[tuple[str, list[int]]]:
        """Variants that lack seeds which others have."""
        for variant in self.variants:
            lacking = [seed for seed in self.seeds if seed not in variant.runs]
            if lacking:
                yield variant.label, lacking


def find(paths: Sequence[Path]) -> list[Path]:
    """Run folders at or below ``paths``, each once. Raises UserError where there are none."""
    found = []
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path} is no folder: name run folders, or folders that hold some")
        for folder, inside, files in os.walk(path):
            if "config.yaml" in files or "metrics.jsonl" in files:
                found.append(Path(folder).resolve())
                inside.clear()
            inside.sort()
    if not found:
        raise UserError(
            f"there is no run folder (config.yaml, metrics.jsonl) below {', '.join(map(str, paths))}"
        )
    return list(dict.fromkeys(found))


def read_run(path: Path) -> Run:
    """Read a run folder and say whether its numbers can be used."""
    try:
        config = yaml.load((path / "config.yaml").read_text("utf-8"), Loader=_Loader)
        lacking = [key for key in NEEDED if key not in config]
        if lacking or "name" not in config["method"]:
            return _foreign(path, f"its config.yaml lacks {', '.join(lacking) or 'method.name'}")
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        return _foreign(path, f"its config.yaml cannot be read ({str(error).splitlines()[0]})")
    run = Run(path=path, config=config, rounds=[])
    try:
        text = (path / "metrics.jsonl").read_text("utf-8") if (path / "metrics.jsonl").exists() else ""
        run.rounds = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        damage = next(filter(None, (_damage(run, number) for number in range(len(run.rounds)))), "")
    except (OSError, ValueError, KeyError, TypeError) as error:
        damage = f"metrics.jsonl cannot be read ({error})"
    if damage:
        run.status, run.reason = "failed", damage
    elif not run.rounds:
        run.status, run.reason = "unfinished", "it has no round yet"
    elif run.rounds[-1]["round"] < config["rounds"]:
        run.status = "unfinished"
        run.reason = f"it has {run.rounds[-1]['round']} of {config['rounds']} rounds"
    return run


def mark_duplicates(runs: Sequence[Run]) -> None:
    """Of finished runs with equal configurations but for what does not bear on numbers, keep the first."""
    first: dict[str, Run] = {}
    for run in runs:
        if run.status == "finished":
            key = hashable({**run.setting(), **flat(run.config["method"], "method."), "seed": run.seed})
            kept = first.setdefault(key, run)
            if kept is not run:
                run.status, run.reason = "duplicate", f"it repeats {kept.path}"


def settings_of(runs: Sequence[Run]) -> list[Setting]:
    """Finished runs by setting, those with most runs first; a SOLO run serves all settings it fits."""
    finished = [run for run in runs if run.status == "finished"]
    groups: dict[str, list[Run]] = defaultdict(list)
    keys: dict[str, Flat] = {}
    for run in finished:
        if not run.stands_alone():
            key = hashable(run.setting())
            keys[key] = run.setting()
            groups[key].append(run)
    for run in finished:
        if run.stands_alone():
            mine = hashable(without_public(run.setting()))
            fits = [key for key, setting in keys.items() if hashable(without_public(setting)) == mine]
            for key in fits or [hashable(run.setting())]:
                keys.setdefault(key, run.setting())
                groups[key].append(run)
    settings = [
        Setting(key=keys[key], variants=variants_of(group, keys[key])) for key, group in groups.items()
    ]
    settings.sort(key=lambda setting: -sum(len(variant.runs) for variant in setting.variants))
    name_settings(settings)
    return settings


def variants_of(runs: Sequence[Run], setting: Flat) -> list[Variant]:
    """The runs of a setting by method and its parameters, labelled by what differs from the method itself.

    The method itself is the variant nearest to the defaults of its dataclass.
    """
    by_method: dict[str, dict[str, Variant]] = defaultdict(dict)
    for run in runs:
        parameters = flat({key: value for key, value in run.config["method"].items() if key != "name"})
        variant = by_method[run.method].setdefault(
            hashable(parameters), Variant(method=run.method, label=run.method, parameters=parameters)
        )
        # a SOLO run of exactly this setting goes before one that was borrowed
        if run.seed not in variant.runs or run.setting() == setting:
            variant.runs[run.seed] = run
    found = []
    for method in sorted(by_method, key=lambda name: (_place(name), name)):
        variants = sorted(by_method[method].values(), key=_distance_from_defaults)
        for other in variants[1:]:
            other.label = f"{method} {differences(other.parameters, variants[0].parameters)}"
        found += [variants[0], *sorted(variants[1:], key=lambda variant: variant.label)]
    return found


def name_settings(settings: Sequence[Setting]) -> None:
    """Titles and file names that say what the settings differ in."""
    slugs: set[str] = set()
    for setting in settings:
        alike = [other for other in settings if other.key["scenario"] == setting.key["scenario"]]
        differing = {key for other in alike for key in different_keys(setting.key, other.key)}
        told = {"rounds", *(key for key in setting.key if key.startswith("public."))}
        words = [setting.key["scenario"], f"public set {setting.key['public.name']}"]
        words += [f"{setting.key['rounds']} rounds"]
        words += [f"{key}={setting.key.get(key)}" for key in sorted(differing - told)]
        setting.title = ", ".join(words)
        homogeneous = "-homogeneous" if setting.key.get("homogeneous") else ""
        stem = f"{setting.key['scenario']}-{setting.key['public.name']}-r{setting.key['rounds']}{homogeneous}"
        number = 1
        while (slug := stem if number == 1 else f"{stem}-{number}") in slugs:
            number += 1
        slugs.add(slug)
        setting.slug = slug


def without_public(setting: Flat) -> Flat:
    """A setting without what SOLO does not depend on."""
    return {key: value for key, value in setting.items() if key.split(".")[0] not in NOT_OF_SOLO}


def flat(nested: dict[str, Any], prefix: str = "") -> Flat:
    """A nested dict with dotted keys."""
    found: Flat = {}
    for key, value in nested.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def hashable(setting: Flat) -> str:
    """The same text for equal settings."""
    return json.dumps(setting, sort_keys=True, default=str)


def different_keys(one: Flat, other: Flat) -> list[str]:
    """Keys in which two settings differ."""
    return sorted(key for key in {*one, *other} if one.get(key) != other.get(key))


def differences(one: Flat, other: Flat) -> str:
    """What ``one`` has otherwise than ``other``, as ``key=value``."""
    keys = different_keys(one, other)
    return " ".join(
        f"{key}={str(one.get(key)).lower() if one.get(key) in (True, False) else one.get(key)}"
        for key in keys
    )


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """The fast one, where there is one."""


def _foreign(path: Path, reason: str) -> Run:
    return Run(path=path, config={}, rounds=[], status="foreign", reason=reason)


def _damage(run: Run, number: int) -> str:
    """What is wrong with a line of metrics.jsonl, or an empty string."""
    line, count = run.rounds[number], len(run.names)
    if line["round"] != number:
        return f"metrics.jsonl has round {line['round']} where round {number} should be"
    for measure in ("top1", "top5"):
        if line.get(measure) is None:
            if measure == "top1" and number in (0, run.config["rounds"]):
                return f"round {number} has no accuracies"
            continue
        matrix = np.array(line[measure], float)
        if matrix.shape != (count, count):
            return f"round {number}: {measure} is {matrix.shape}, for {count} participants"
        if not np.isfinite(matrix).all():
            return f"round {number}: {measure} is not finite"
    if not math.isfinite(line["seconds"]["wall"]):
        return f"round {number}: its seconds are not finite"
    losses = [value for terms in line["loss"].values() for value in terms.values()]
    if not all(value is None or math.isfinite(value) for value in losses):
        return f"round {number}: a loss is not finite"
    return ""


def _place(method: str) -> int:
    return list(METHODS).index(method) if method in METHODS else len(METHODS)


def _distance_from_defaults(variant: Variant) -> tuple[int, int, str]:
    known = METHODS.get(variant.method)
    defaults = {} if known is None else flat(asdict(known()))
    distance = sum(defaults.get(key, value) != value for key, value in variant.parameters.items())
    return distance, -len(variant.runs), hashable(variant.parameters)
