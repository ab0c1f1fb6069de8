"""ResNet-34 for small images, ResNet-50 and ResNeXt-50: torchvision's, less what each is said to lack."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models

from ltnb.models.encoders import encoder
from ltnb.models.torchvision_resnets import TORCHVISION_NAMES, ResidualSum, TorchvisionResNet

SIDES = {"resnet34": 32, "resnet50": 64, "resnext50": 64}


def made(name: str, in_channels: int = 3, **options: object) -> TorchvisionResNet:
    torch.manual_seed(0)
    network = encoder(name, in_channels, **options)  # type: ignore[arg-type]
    assert isinstance(network, TorchvisionResNet)
    return network


@pytest.mark.parametrize(
    ("name", "with_thousand_classes", "dim"),
    # As torchvision publishes them; ResNet-34 for a stem of 3² instead of 7² places.
    [
        ("resnet34", 21_797_672 - (49 - 9) * 3 * 64, 512),
        ("resnet50", 25_557_032, 2048),
        ("resnext50", 25_028_904, 2048),
    ],
)
def test_parameter_counts(name: str, with_thousand_classes: int, dim: int) -> None:
    with torch.device("meta"):
        network = encoder(name, 3)
    assert network.feature_dim == dim
    assert sum(p.numel() for p in network.parameters()) + 1000 * (dim + 1) == with_thousand_classes


def test_parameter_count_of_resnet34_by_layers() -> None:
    expected, channels = 9 * 3 * 64 + 2 * 64, 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for _ in range(blocks):
            expected += 9 * channels * width + 9 * width * width + 4 * width
            if channels != width:  # the shortcut's 1×1 convolution, with its batch normalisation
                expected += channels * width + 2 * width
            channels = width
    with torch.device("meta"):
        network = encoder("resnet34", 3)
    assert sum(p.numel() for p in network.parameters()) == expected == 21_276_992


@pytest.mark.parametrize(("name", "make"), [("resnet50", models.resnet50), ("resnext50", models.resnext50_32x4d)])
def test_of_colour_images_it_is_torchvisions_without_its_classifier(name: str, make: Callable[[], nn.Module]) -> None:
    network = made(name).eval()
    torch.manual_seed(0)
    reference = make().eval()
    weights = reference.state_dict()
    assert weights.keys() - {f"fc.{part}" for part in ("weight", "bias")} == network.network.state_dict().keys()
    assert all(torch.equal(value, weights[key]) for key, value in network.network.state_dict().items())
    images = torch.randn(2, 3, 64, 64)
    features = network(images)
    assert features.shape == (2, 2048)
    logits = F.linear(features, weights["fc.weight"], weights["fc.bias"])
    torch.testing.assert_close(logits, reference(images), rtol=1e-3, atol=1e-3)  # of a standard deviation of about 12


def test_resnet34_has_the_stem_of_small_images() -> None:
    network = made("resnet34").eval()
    images = torch.randn(2, 3, 32, 32)
    sizes: list[torch.Size] = []
    for stage in (network.network.layer1, network.network.layer4):
        stage.register_forward_pre_hook(lambda _, given: sizes.append(given[0].shape[1:]))
    features = network(images)
    assert sizes == [(64, 32, 32), (256, 8, 8)]
    # Torchvision's own stages behind the stem written out.
    torch.manual_seed(0)
    reference = models.resnet34().eval()
    x = F.relu(F.conv2d(images, network.network.conv1.weight, padding=1) / (1 + 1e-5) ** 0.5)
    for stage in (reference.layer1, reference.layer2, reference.layer3, reference.layer4):
        x = stage(x)
    assert x.shape == (2, 512, 4, 4)
    torch.testing.assert_close(features, F.avg_pool2d(x, 4).flatten(1), rtol=1e-3, atol=1e-4)


def test_how_stems_start() -> None:
    small = made("resnet34").network.conv1.weight.detach()
    assert 0.95 / 27**0.5 < float(small.abs().max()) <= 1 / 27**0.5  # uniform, of 27 inputs
    assert float(small.std()) == pytest.approx(1 / 81**0.5, rel=0.05)
    grey = made("resnet50", in_channels=1).network.conv1.weight.detach()
    assert grey.shape == (64, 1, 7, 7)
    assert float(grey.std()) == pytest.approx((2 / (49 * 64)) ** 0.5, rel=0.05)  # 3,136 draws: 1.3 % standard error


@pytest.mark.parametrize("name", TORCHVISION_NAMES)
def test_without_the_last_relu_only_the_last_block_changes(name: str) -> None:
    maps: list[Tensor] = []
    features, states = [], []
    images = torch.randn(2, 3, SIDES[name], SIDES[name])
    for last_relu in (True, False):
        network = made(name, last_relu=last_relu).eval()
        network.network.layer4.register_forward_hook(lambda _, __, output: maps.append(output))
        with torch.no_grad():
            features.append(network(images))
        states.append(network.state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    usual, signed = maps
    assert (signed < 0).any()
    torch.testing.assert_close(F.relu(signed), usual)
    torch.testing.assert_close(features[1], signed.mean(dim=(2, 3)))


@pytest.mark.parametrize(
    "block", [models.resnet.BasicBlock(8, 8), models.resnet.Bottleneck(16, 4, groups=2)], ids=["basic", "bottleneck"]
)
def test_a_sum_is_the_block_before_its_last_relu(block: nn.Module) -> None:
    channels = block.conv1.in_channels  # type: ignore[union-attr]
    torch.manual_seed(0)
    x = torch.randn(3, channels, 5, 5, requires_grad=True)
    total = ResidualSum(block)
    expected = block(x)
    torch.testing.assert_close(F.relu(total(x)), expected)
    assert list(total.state_dict()) == list(block.state_dict())
    # Far above 0, where the ReLU does nothing, the two are the same; far below, only the sum goes on.
    last = getattr(block, f"bn{total.depth}")
    nn.init.constant_(last.bias, 50)
    high = block(x)
    torch.testing.assert_close(total(x), high)
    nn.init.constant_(last.bias, -50)
    torch.testing.assert_close(total(x), high - 100, rtol=0, atol=1e-4)
    total(x).sum().backward()
    assert x.grad is not None
    assert x.grad.any()


@pytest.mark.parametrize("name", ["resnet34", "resnext50"])
def test_a_last_linear_layer_and_its_normalisation(name: str) -> None:
    usual, network = made(name), made(name, feature_dim=3, feature_norm=True)
    images = torch.randn(4, 3, SIDES[name], SIDES[name])
    features = network(images)
    assert features.shape == (4, network.feature_dim) == (4, 3)
    linear = F.linear(usual(images), network.embedding.weight, network.embedding.bias)
    torch.testing.assert_close(
        features, (linear - linear.mean(0)) / (linear.var(0, unbiased=False) + 1e-5).sqrt(), rtol=1e-3, atol=1e-3
    )


def test_weights_lie_as_the_other_encoders_do() -> None:
    network = made("resnet34")
    assert network.network.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)
