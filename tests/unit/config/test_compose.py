"""Composition: presets, overrides, and errors that say what to do."""

import json
from pathlib import Path

import pytest

from fccl_mpi.config.cli import Parser
from fccl_mpi.config.compose import PRESETS, compose, digest, to_yaml
from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.run import main

SCENARIOS = sorted(path.stem for path in (PRESETS / "scenario").glob("*.yaml"))


def make(*overrides: str):
    return compose(overrides, methods=METHODS)


def test_the_default_is_fccl_on_quickstart():
    config = make()
    assert (config.scenario, config.method.name, config.exchange) == ("quickstart", "fccl", "batch")
    assert len(config.participants) == 4
    assert len({own.model for own in config.participants.values()}) == 4


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("method", METHODS)
def test_every_scenario_composes_with_every_method(scenario: str, method: str):
    config = make(f"scenario={scenario}", f"method={method}")
    assert (config.scenario, config.method.name) == (scenario, method)


def test_presets_are_the_two_readings_of_the_paper():
    released, paper = make("scenario=digits"), make("scenario=digits", "preset=cvpr2022_paper")
    assert released.preset == "cvpr2022_released"
    assert (released.exchange, released.method.own_entry, released.method.public_optimizer) == (
        "batch",
        "previous",
        "batch",
    )
    assert (paper.exchange, paper.method.own_entry, paper.method.public_optimizer) == (
        "round",
        "current",
        "round",
    )
    assert released.method.unbiased_std and not paper.method.unbiased_std


def test_what_the_authors_set_for_one_scenario_alone():
    assert make("method=fccl_plus").method.similarity_weight == 3
    assert make("method=fccl_plus", "scenario=office_home").method.similarity_weight == 1
    assert make("method=fedavg", "scenario=office_home", "homogeneous=true").method.average == "before"


def test_an_override_beats_the_preset():
    assert make("scenario=digits", "exchange=round", "method.own_entry=current").exchange == "round"


def test_a_participant_can_be_taken_out():
    assert list(make("~participants.syn").participants) == ["mnist", "optdigits", "mnist_m"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rouns=3", "did you mean 'rounds'?"),
        ("participants.mnst.width=1", "did you mean 'participants.mnist.width'?"),
        ("method.off_diag_wieght=1", "did you mean 'method.off_diag_weight'?"),
        ("method=fcl", "did you mean 'fccl'?"),
        ("scenario=quickstrat", "did you mean 'quickstart'?"),
        ("+rouns=3", "there is no key 'rouns'"),
        ("rounds=many", "rounds=many"),
        ("rounds=-1", "rounds=-1 is out of range: it must be 0 or more"),
        ("exchange=bach", "must be one of batch, round"),
        ("lr=0", "lr=0.0 is out of range"),
        ("public_batch_size=99999", "from 1 to public_size="),
        ("method.own_entry=mine", "must be one of previous, current"),
        ("lr=inf", "lr=inf is out of range: it must be a finite number"),
        ("participants.mnist.width=inf", "participants.<domain>.width=inf is out of range"),
        ("public.mean=[nan,0.5,0.5]", "public.mean=nan is out of range"),
        ("method.temperature=inf", "method.temperature=inf is out of range"),
        ("participants.mnist.width=0", "width=0.0 is out of range"),
        ("public.std=[1,1]", "three numbers"),
        ("rounds", "settings are written key=value"),
        ("data={a: 1}", "data={a: 1}"),
        (
            "recompute=[sny]",
            "recompute=['sny'] is out of range: it must be true, false or a list of some of mnist",
        ),
        ("recompute=syn", "recompute=syn is out of range"),
        ("recompute=1", "recompute=1 is out of range"),
    ],
)
def test_what_does_not_fit_is_named_with_what_to_do(override: str, message: str):
    with pytest.raises(UserError) as error:
        make(override)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_allreduce_goes_with_what_takes_the_mean():
    assert make("method=fedmd", "collective=allreduce").collective == "allreduce"
    for override in ("method=rcfl", "aggregate=median"):
        with pytest.raises(UserError, match=override):
            make(override, "collective=allreduce")


def test_all_recompute_or_none_or_some():
    found = [make(f"recompute={asked}").recompute for asked in ("true", "false", "[syn,mnist]", "[]")]
    assert found == [["mnist", "optdigits", "mnist_m", "syn"], [], ["syn", "mnist"], []]
    with pytest.raises(UserError, match="false where compile=true"):
        make("compile=true", "recompute=[syn]")


def test_digest_leaves_out_what_does_not_bear_on_numbers_made():
    reference = digest(make())
    for override in (
        "rounds=7",
        "out=elsewhere",
        "data=elsewhere",
        "device=cpu",
        "threads=3",
        "evaluate_every=2",
        "recompute=[syn]",
    ):
        assert digest(make(override)) == reference, override
    for override in ("seed=1", "lr=0.01", "method.off_diag_weight=1", "precision=bf16", "exchange=round"):
        assert digest(make(override)) != reference, override


def test_yaml_of_a_config_composes_to_the_same(tmp_path: Path):
    config = make("seed=5", "participants.syn.width=2", "recompute=[syn]")
    (tmp_path / "scenario").mkdir()
    text = "# @package _global_\n" + to_yaml(config)
    (tmp_path / "scenario" / "again.yaml").write_text(text)
    assert digest(compose(["scenario=again"], methods=METHODS, config_dir=tmp_path)) == digest(config)


def test_help_lists_every_key_with_its_doc():
    text = Parser(program="fccl_mpi.run", purpose="", methods=METHODS).format_help()
    for line in (
        "rounds (int) = 40",
        "recompute = False",
        "participants.<domain>.width (float) = 1.0",
        "method.off_diag_weight (float) = 0.0051",
    ):
        assert line in text
    assert "λ_Col of Eq. 2: weight of the off-diagonal entries." in text
    undocumented = [
        line for line in text.splitlines() if line.startswith("  ") and line.rstrip().endswith("=")
    ]
    assert not undocumented


def test_print_config_needs_no_mpi(capsys: pytest.CaptureFixture):
    assert main(["--print-config", "seed=11"]) == 0
    assert "seed: 11" in capsys.readouterr().out


def test_config_is_plain_json():
    from fccl_mpi.config.compose import to_dict

    json.dumps(to_dict(make()), allow_nan=False)
