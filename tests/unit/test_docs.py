"""What README and CONTRIBUTING say can be done is done here."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fccl_mpi import reproduce
from fccl_mpi.bench import command as bench
from fccl_mpi.config.compose import compose
from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.report import __main__ as report
from fccl_mpi.sweep import __main__ as sweep
from fccl_mpi.sweep.sweep import Sweep
from tests.conftest import PRESETS
from tests.unit.federation.test_federation import federate, numbers

ROOT = Path(__file__).parents[2]
DOCS = ("README.md", "CONTRIBUTING.md")


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of a document."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text("utf-8"), re.DOTALL)


def commands(pattern: str) -> list[str]:
    """The shell lines of all documents in which ``pattern`` is found."""
    lines = [line.strip() for name in DOCS for block in blocks(name, "bash") for line in block.split("\n")]
    return [line for line in lines if re.search(pattern, line)]


COMMANDS = commands(r"mpirun .*fccl_mpi\.(run|bench)")
PROGRAMS = commands(r"^python -m fccl_mpi\.(sweep|report|reproduce|bench)")


@pytest.mark.parametrize("command", PROGRAMS)
def test_every_program_shown_is_understood(command: str):
    program, *words = shlex.split(command)[2:]
    if program in ("fccl_mpi.report", "fccl_mpi.bench"):
        (report if program == "fccl_mpi.report" else bench).make_parser().parse_args(words)
        return
    if program == "fccl_mpi.reproduce":
        options, rest = reproduce.make_parser().parse_known_args(words)
        words = reproduce.plan(options.target, options.scenario, options.seeds, rest)
    options = sweep.make_parser().parse_intermixed_args(words)
    planned = Sweep(options, METHODS)
    assert options.search or len(planned.configs) > 1


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own method and model as CONTRIBUTING shows them; returns the folder for --config-dir."""
    method, model = blocks("CONTRIBUTING.md", "python")
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "my_module.py").write_text(f"{method}\n\n{model}")
    for folder, text in zip(("method", "scenario"), blocks("CONTRIBUTING.md", "yaml"), strict=True):
        (tmp_path / "my_configs" / folder).mkdir(parents=True)
        (tmp_path / "my_configs" / folder / "mine.yaml").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "my_configs"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_settings_that_are_there_and_the_right_number_of_ranks(command: str, own_package):
    words = shlex.split(command.split("&&")[-1].replace("$seed", "0"))
    ranks, settings = int(words[words.index("-n") + 1]), words[words.index("-m") + 2 :]
    if "--config-dir" in settings:
        del settings[settings.index("--config-dir") : settings.index("--config-dir") + 2]
    config = compose(settings, methods=METHODS, config_dir=own_package)
    assert ranks == len(config.participants) + 1


def test_a_users_own_method_and_model_run_as_contributing_shows_them(tiny_data, tmp_path, own_package):
    for folder, name in (("scenario", "tiny"), ("public", "noise")):
        (own_package / folder).mkdir(exist_ok=True)
        (own_package / folder / f"{name}.yaml").write_text((PRESETS / folder / f"{name}.yaml").read_text())

    def make(*overrides: str):
        settings = [
            "scenario=tiny",
            f"data={tiny_data}",
            f"out={tmp_path}",
            "~participants.blue",
            "~participants.grey",
        ]
        model = "participants.red.model=my_package.my_module:build"
        return compose([*settings, model, "method=mine", *overrides], methods=METHODS, config_dir=own_package)

    assert make().method.strength == 0.5  # the file's
    config = make("method.strength=2", "method.public_optimizer=round")
    assert config.method.strength == 2
    folder = federate(config)
    assert folder.path.parent.name == "mine"
    losses = numbers(folder)[-1]["loss"]["red"]
    assert losses["collaborative"] > 0 and losses["local"] > 0
    with pytest.raises(UserError, match=r"did you mean 'method\.strength'"):
        make("method.strenght=2")
    with pytest.raises(UserError, match=r"method\.strength=much|strength"):
        make("method.strength=much")


def test_a_users_own_scenario_splits_a_domain_as_contributing_shows(own_package):
    config = compose(["scenario=mine"], methods=METHODS, config_dir=own_package)
    assert (config.scenario, config.label_skew) == ("mine", 0.5)
    assert config.participants["second"].domain == config.participants["mnist"].domain == "mnist"
    assert len(config.participants) == 5


def test_an_own_method_that_cannot_be_imported_is_named(own_package):
    (own_package / "method" / "lost.yaml").write_text("target: no_such_package.module:Mine\n")
    with pytest.raises(UserError, match=r"method=lost: its target 'no_such_package\.module:Mine'"):
        compose(["method=lost"], methods=METHODS, config_dir=own_package)


def test_the_models_are_those_of_the_readme():
    text = (ROOT / "README.md").read_text("utf-8")
    config = compose([], methods=METHODS)
    for rank, (name, own) in enumerate(config.participants.items(), start=1):
        assert re.search(rf"rank {rank} +{name} .* {own.private_size} private images", text), name


def test_the_sizes_of_models_are_what_the_command_prints():
    command = [sys.executable, "-m", "fccl_mpi.models"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert printed in (ROOT / "README.md").read_text("utf-8")
