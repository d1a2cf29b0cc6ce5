"""The backbones: what they compute, their sizes against torchvision's own, and how they are had by name."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision import models as torchvision_models
from torchvision.models.googlenet import BasicConv2d
from torchvision.models.resnet import BasicBlock, ResNet

from fccl_mpi.core.errors import UserError
from fccl_mpi.models.__main__ import main
from fccl_mpi.models.base import scaled
from fccl_mpi.models.registry import MODELS, build

every_model = pytest.mark.parametrize("name", MODELS)

FEATURES = {name: 512 for name in MODELS if name.startswith("resnet")} | {
    "efficientnet_b0": 1280,
    "mobilenet_v2": 1280,
    "googlenet": 1024,
    "shufflenet_v2": 1024,
}


def slim(name, classes=10, width=0.25, seed=0):
    torch.manual_seed(seed)
    return build(name, classes=classes, width=width)


def pictures(count=4, seed=1):
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


# ---- what they compute


@every_model
@pytest.mark.parametrize("classes", [3, 10, 65])
def test_logits_and_features_have_their_shapes_in_train_and_eval_mode(name, classes):
    model = slim(name, classes, width=0.125)
    for mode in (True, False):
        model.train(mode)
        logits, features = model(pictures(2)), model.features(pictures(2))
        assert logits.shape == (2, classes)
        assert features.shape == (2, model.feature_width)
        assert logits.dtype == features.dtype == torch.float32
        assert logits.isfinite().all()


@every_model
def test_logits_are_the_classifier_of_the_features(name):
    model = slim(name).eval()
    features = model.features(pictures())
    torch.testing.assert_close(model(pictures()), model.classifier(features), rtol=0, atol=0)
    torch.testing.assert_close(model(pictures()), model.classify(features), rtol=0, atol=0)


@every_model
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_step_moves_every_parameter(name, memory_format):
    model = slim(name).train().to(memory_format=memory_format)
    before = {key: parameter.clone() for key, parameter in model.named_parameters()}
    optimiser = torch.optim.Adam(model.parameters(), lr=0.001)

    images = pictures(8).contiguous(memory_format=memory_format)
    cross_entropy(model(images), torch.arange(8)).backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    assert [key for key, gradient in gradients.items() if gradient is None] == []
    assert [key for key, gradient in gradients.items() if not gradient.isfinite().all()] == []

    optimiser.step()
    assert [key for key, value in model.named_parameters() if value.equal(before[key])] == []


@every_model
def test_batchnorm_begins_near_the_true_variance(name):
    """Else eval mode lags train mode for longer than a small private set trains."""
    model = slim(name, width=0.5).train()
    norms = {key: module for key, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}
    for norm in norms.values():
        norm.momentum = 1.0  # the running variance becomes this batch's
    model(pictures(8))
    variances = {key: norm.running_var.mean().item() for key, norm in norms.items()}
    assert {key: variance for key, variance in variances.items() if not 0.05 < variance < 20} == {}


@every_model
def test_channels_last_computes_the_same(name):
    model = slim(name).eval()
    expected = model(pictures())
    model.to(memory_format=torch.channels_last)
    actual = model(pictures().contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


@every_model
def test_the_seed_decides_weights_and_training(name):
    def train_mode_logits(seed):
        return slim(name, seed=seed).train()(pictures())

    assert train_mode_logits(0).equal(train_mode_logits(0))
    assert not train_mode_logits(0).equal(train_mode_logits(1))


@every_model
def test_a_state_dict_is_tensors_and_the_whole_state(name):
    model, other = slim(name, seed=0), slim(name, seed=1)
    model.train()(pictures())  # moves BatchNorm's running statistics
    state = model.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    other.load_state_dict(state)
    assert other.eval()(pictures()).equal(model.eval()(pictures()))


def test_only_efficientnet_drops_at_random():
    images = pictures()
    random = set()
    for name in MODELS:
        model = slim(name).train()
        if not model(images).equal(model(images)):
            random.add(name)
    assert random == {"efficientnet_b0"}


# ---- against torchvision's own


def fitted_resnet(depths):
    model = ResNet(BasicBlock, depths, num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def fitted_mobilenet():
    model = torchvision_models.mobilenet_v2(num_classes=10)
    model.features[0][0].stride = model.features[2].conv[1][0].stride = (1, 1)
    return model


def fitted_efficientnet():
    model = torchvision_models.efficientnet_b0(num_classes=10)
    model.features[0][0].stride = (1, 1)
    return model


def fitted_googlenet():
    model = torchvision_models.googlenet(num_classes=10, aux_logits=False, init_weights=False)
    model.conv1 = BasicConv2d(3, 192, kernel_size=3, padding=1)
    model.maxpool1 = model.conv2 = model.conv3 = model.maxpool2 = nn.Identity()
    model.maxpool4 = model.maxpool3  # 3×3 as in the paper; torchvision's last one is 2×2
    return model


def fitted_shufflenet():
    model = torchvision_models.shufflenet_v2_x1_0(num_classes=10)
    model.conv1[0].stride = (1, 1)
    model.maxpool = nn.Identity()
    return model


TORCHVISION = {
    "resnet10": lambda: fitted_resnet([1, 1, 1, 1]),
    "resnet12": lambda: fitted_resnet([2, 1, 1, 1]),
    "resnet18": lambda: fitted_resnet([2, 2, 2, 2]),
    "resnet34": lambda: fitted_resnet([3, 4, 6, 3]),
    "efficientnet_b0": fitted_efficientnet,
    "mobilenet_v2": fitted_mobilenet,
    "googlenet": fitted_googlenet,
    "shufflenet_v2": fitted_shufflenet,
}


@every_model
def test_full_width_is_torchvisions_network_with_the_strides_fitted(name):
    model = build(name, classes=10).train()
    model(pictures(2))  # so that BatchNorm's running statistics are not all 0 and 1
    reference = TORCHVISION[name]()
    theirs, ours = reference.state_dict(), model.state_dict()
    assert len(theirs) == len(ours)
    reference.load_state_dict(dict(zip(theirs, ours.values(), strict=True)))
    torch.testing.assert_close(model.eval()(pictures(2)), reference.eval()(pictures(2)))


PARAMETERS = {  # 10 classes
    "resnet10": 4_903_242,
    "resnet12": 4_977_226,
    "resnet18": 11_173_962,
    "resnet34": 21_282_122,
    "efficientnet_b0": 4_020_358,  # torchvision's efficientnet_b0(num_classes=10)
    "mobilenet_v2": 2_236_682,  # torchvision's mobilenet_v2(num_classes=10)
    "googlenet": 5_490_986,  # torchvision's, 5,610,154, with 5,568 instead of 124,736 in the stem
    "shufflenet_v2": 1_263_854,  # torchvision's shufflenet_v2_x1_0(num_classes=10)
}


def parameters_of(model):
    return sum(parameter.numel() for parameter in model.parameters())


@every_model
def test_full_width_parameter_counts(name):
    assert parameters_of(build(name, classes=10)) == PARAMETERS[name]
    assert parameters_of(build(name, classes=65)) == PARAMETERS[name] + 55 * (FEATURES[name] + 1)


# ---- width


@every_model
def test_width_scales_every_channel(name):
    slimmest, quarter, half, full = (build(name, classes=10, width=width) for width in (0.01, 0.25, 0.5, 1.0))
    for model, width in ((quarter, 0.25), (half, 0.5), (full, 1.0)):
        assert model.feature_width == FEATURES[name] * width
    assert slimmest.feature_width < quarter.feature_width
    assert parameters_of(slimmest) < parameters_of(quarter) < parameters_of(half) / 2
    assert parameters_of(half) < parameters_of(full) / 3


@pytest.mark.parametrize(
    ("channels", "width", "divisor", "expected"),
    [
        (64, 1, 8, 64),
        (64, 0.25, 8, 16),
        (64, 0.01, 8, 8),
        (96, 0.125, 8, 16),
        (116, 1, 4, 116),
        (32, 3, 8, 96),
    ],
)
def test_scaled_channels(channels, width, divisor, expected):
    assert scaled(channels, width, divisor) == expected


@every_model
@pytest.mark.parametrize("width", [0, -1.0, float("nan"), float("inf")])
def test_a_width_out_of_range_is_the_users_error(name, width):
    with pytest.raises(UserError, match=f"width={width}"):
        build(name, classes=10, width=width)


@every_model
def test_fewer_than_two_classes_are_the_users_error(name):
    with pytest.raises(UserError, match="1 classes"):
        build(name, classes=1, width=0.125)


# ---- by name


def test_the_registry_imports_no_torch():
    code = "import fccl_mpi.models.registry, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list():
    with pytest.raises(UserError) as caught:
        build("resnet19", classes=10)
    message = str(caught.value)
    assert "'resnet19'" in message
    assert "did you mean resnet1" in message
    assert all(name in message for name in MODELS)
    with pytest.raises(UserError) as caught:
        build("zzz", classes=10)
    assert "did you mean" not in str(caught.value)


OWN = """
from torch import nn

def build(*, classes, width):
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, classes))

def words(classes, width):
    return "a model"

def narrow(classes):
    return nn.Identity()

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(OWN, "utf-8")
    (tmp_path / "own_broken.py").write_text("1 / 0", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_models", None)


def test_a_users_own_builder(own):
    model = build("own_models:build", classes=7, width=1.0)
    assert model(pictures(2)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module:build", "No module named 'no_such_module'"),
        ("own_models:bild", "no attribute 'bild'"),
        ("own_models:", "cannot be called"),
        (":build", "cannot be imported"),
        ("own_broken:build", "ZeroDivisionError"),
        ("own_models:words", "not str"),
        ("own_models:narrow", "cannot be called with classes= and width="),
        ("own_models:number", "cannot be called with classes= and width="),
    ],
)
def test_a_users_builder_that_fails_is_named(own, name, why):
    with pytest.raises(UserError) as caught:
        build(name, classes=7)
    assert f"'{name}'" in str(caught.value)
    assert why in str(caught.value)


def test_the_table_of_sizes(capsys):
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(MODELS)
    assert all(line.count("|") == 6 for line in lines)
    stem, first_stage = 32**2 * 64 * 3 * 9, 32**2 * 64 * 4 * 64 * 9
    later_stage = (
        16**2 * 128 * (64 * 9 + 3 * 128 * 9 + 64)
    )  # each has the same: half the side, twice the channels
    resnet18 = stem + first_stage + 3 * later_stage + 512 * 10
    assert f"| resnet18 | 11,173,962 | {resnet18:,} |" in lines[4]
