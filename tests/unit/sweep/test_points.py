"""From words to points."""

import json
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from fccl_mpi.config.compose import PRESETS, Composer, compose, to_dict
from fccl_mpi.core.errors import UserError
from fccl_mpi.methods.registry import METHODS
from fccl_mpi.store.folder import RunFolder, pretrained_path
from fccl_mpi.sweep.points import (
    Points,
    alternatives,
    combine,
    key_of_pretraining,
    names_of_groups,
    read_axes,
)

NAMES = names_of_groups(METHODS, None)


def grid(*words: str):
    """Points and configurations of a grid."""
    axes = ([(other,) for other in alternatives(word, NAMES)] for word in words)
    return Points(methods=METHODS, config_dir=None).make(combine(axes))


ALONE = (
    ["seed=3", "lr=1", "homogeneous=true"],
    ["homogeneous=true", "homogeneous=false", "method=solo"],
    ["scenario=digits", "preset=cvpr2022_paper", "exchange=batch", "participants.mnist.width=0.5"],
    ["public=cifar10", "public.mean=[0,0,0]", "~participants.syn"],
    ["participants.mnist.width=2", "~participants.syn", "seed=1", "participants.mnist.width=3"],
    ["rounds=2", "++rounds=3", "participants={mnist: {width: 2}}"],
    ["++rounds=3", "rounds=2", "method.off_diag_weight=3"],
)


def test_what_is_composed_together_is_what_hydra_composes_alone():
    together = Composer(methods=METHODS)
    for words in [*ALONE, *reversed(ALONE)]:
        with initialize_config_dir(str(PRESETS), version_base="1.3"):
            alone = OmegaConf.to_object(hydra_compose("config", overrides=words))
        assert to_dict(together(words)) == to_dict(alone), words


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("seed=0,1", ["seed=0", "seed=1"]),
        ("seed=range(3)", ["seed=0", "seed=1", "seed=2"]),
        ("+lr=choice(0.1,1e-3)", ["+lr=0.1", "+lr=0.001"]),
        ("method=glob(fed*)", ["method=fedavg", "method=fedmd", "method=feddf", "method=fedmatch"]),
        ("public.mean=[0,0,0],[1,1,1]", ["public.mean=[0,0,0]", "public.mean=[1,1,1]"]),
        ("~participants.syn", ["~participants.syn"]),
        ("lr=0.1", ["lr=0.1"]),
    ],
)
def test_words_are_hydras_grammar(word, expected):
    assert alternatives(word, NAMES) == expected


def test_a_method_that_lacks_a_setting_is_one_point_whatever_that_is():
    points = grid("method=fccl,fedmd,feddf", "seed=0,1,2", "method.off_diag_weight=0.001,0.0051")
    assert [point.name.split("-")[0] for point in points].count("fccl") == 6
    assert len(points) == 12
    for point, config in points.items():
        assert point.folder == str(RunFolder(config).path)
        assert config == compose(point.settings, methods=METHODS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method=fccl,fedmd", "method.off_diag_wieght=1"], "did you mean 'method.off_diag_weight'?"),
        (["seeds=0,1"], "did you mean 'seed'?"),
        (["method=fccl,fedmt"], "did you mean 'fedmd'?"),
        (["method=glob(x*)"], "no method is called so; there are: solo, fedavg"),
        (["lr=interval(0.1,1)"], "an interval is for --search"),
        (["seed=0,-1"], "seed=-1 is out of range"),
        (["rounds=2,4"], "'rounds=4' and 'rounds=2' are one and the same run"),
        (["seed"], "settings are written key=value"),
    ],
)
def test_what_does_not_fit_is_refused(words, message):
    with pytest.raises(UserError) as error:
        grid(*words)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_file_has_axes_and_points(tmp_path: Path):
    path = tmp_path / "axes.yaml"
    path.write_text(
        "axes:\n  method: [fccl, fedmd]\n  seed: range(2)\n  public.mean: [[0, 0, 0], [1, 1, 1]]\n"
        "points:\n  - {rounds: 10, lr: 1e-3}\n  - {lr: 0.0005, homogeneous: true, ~participants.syn: null}\n"
    )
    words, explicit = read_axes(path)
    assert words == ["method=choice(fccl,fedmd)", "seed=range(2)", "public.mean=choice([0, 0, 0],[1, 1, 1])"]
    axes = ([(other,) for other in alternatives(word, NAMES)] for word in words)
    points = Points(methods=METHODS, config_dir=None).make(combine([explicit, *axes]))
    assert len(points) == 2 * 8
    assert {len(config.participants) for config in points.values()} == {3, 4}
    assert {(config.lr, config.rounds, config.homogeneous) for config in points.values()} == {
        (0.001, 10, False),
        (0.0005, 6, True),
    }


@pytest.mark.parametrize(
    "text", ["[1, 2]", "axis: {seed: [1]}", "points: [1]", "axes: [seed]", "a: b: c", ""]
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "axes.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"axes\.yaml cannot be used: "):
        read_axes(path)
    with pytest.raises(UserError, match=r"nowhere\.yaml cannot be used: "):
        read_axes(tmp_path / "nowhere.yaml")


OTHERS = (
    *("method=fedmd", "rounds=9", "exchange=round", "public_size=448", "participants.mnist.local_epochs=2"),
    *("seed=1", "lr=0.01", "pretrain_epochs=3", "local_batch_size=8", "out=elsewhere", "homogeneous=true"),
    *("participants.mnist.width=0.5", "participants.mnist.model=resnet10", "participants.mnist.share=2"),
    *("participants.mnist.private_size=10", "label_skew=0.5", "data=elsewhere", "scenario=digits_real"),
)


@pytest.mark.parametrize("other", OTHERS)
def test_points_share_pretrained_models_where_these_are_the_same_file(other: str):
    reference, changed = compose([], methods=METHODS), compose([other], methods=METHODS)

    def files(config):
        # What draws the private images stands for their digest, which is that of their content.
        own = {name: (own.domain, own.private_size, own.share) for name, own in config.participants.items()}
        images = json.dumps([config.data, config.task, config.seed, config.label_skew, own])
        return [pretrained_path(config, name, images) for name in config.participants]

    assert (key_of_pretraining(reference) == key_of_pretraining(changed)) == (
        files(reference) == files(changed)
    )


def test_models_that_several_points_need_are_trained_once_before():
    points = Points(methods=METHODS, config_dir=None)
    axes = (
        alternatives(word, NAMES) for word in ("method=fccl,fedmd", "seed=0,1", "method.off_diag_weight=2")
    )
    configs = points.make(combine([[(word,) for word in axis] for axis in axes]))
    alone = points.make([("method=fccl", "seed=5")])
    needs = points.pretraining({**configs, **alone}, begun=[])
    assert set(needs) == set(configs)
    runs = {run.settings for run in needs.values()}
    assert runs == {(f"seed={seed}", "method=solo", "rounds=0") for seed in (0, 1)}
    for point, run in needs.items():
        assert key_of_pretraining(configs[point]) == key_of_pretraining(
            compose(run.settings, methods=METHODS)
        )
    assert len(points.pretraining(configs, begun=[next(iter(configs))])) == 2  # of the other seed
