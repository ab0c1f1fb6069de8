"""The convolutional encoders of the MNIST and CIFAR-10 runs with wrong labels, against their layers written out."""

import pytest
import torch
from torch.nn import functional as F

from ltnb.models.cnn import CNN4, CNN8, ConvolutionalEncoder, area_averages
from ltnb.models.encoders import encoder


@pytest.mark.parametrize("in_channels", [1, 3])
def test_parameter_count(in_channels: int) -> None:
    # Weights and biases of two convolutions and a linear layer, scale and shift of three batch normalisations.
    expected = (9 * in_channels * 32 + 32) + (9 * 32 * 64 + 64) + (64 * 49 * 128 + 128) + 2 * (32 + 64 + 128)
    assert sum(p.numel() for p in encoder("cnn4", in_channels).parameters()) == expected
    assert expected == {1: 420_800, 3: 421_376}[in_channels]


def test_parameter_count_of_eight_layers() -> None:
    expected, channels = 0, 3
    for width in (64, 64, 128, 128, 196, 196):
        expected += 9 * channels * width + width + 2 * width
        channels = width
    expected += 196 * 16 * 256 + 256 + 2 * 256
    assert sum(p.numel() for p in encoder("cnn8", 3).parameters()) == expected == 1_637_224


@pytest.mark.parametrize(
    ("name", "side", "convolutions", "dim"), [("cnn4", 28, (1, 1), 128), ("cnn8", 32, (2, 2, 2), 256)]
)
@pytest.mark.parametrize("last_relu", [True, False])
def test_its_layers_written_out(name: str, side: int, convolutions: tuple[int, ...], dim: int, last_relu: bool) -> None:
    torch.manual_seed(0)
    network = encoder(name, 1, last_relu=last_relu).eval()
    for buffer_name, buffer in network.named_buffers():
        if "running" in buffer_name:
            torch.nn.init.uniform_(buffer, 0.5, 1.5)
    x = images = torch.randn(3, 1, side, side)
    state = network.state_dict()

    def normalised(y: torch.Tensor, name: str) -> torch.Tensor:
        parts = (state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        mean, variance, scale, shift = (part.view(1, -1, *[1] * (y.ndim - 2)) for part in parts)
        return scale * (y - mean) / (variance + 1e-5).sqrt() + shift

    for block, number in enumerate(convolutions):
        for i in range(0, 3 * number, 3):
            x = F.conv2d(x, state[f"blocks.{block}.{i}.weight"], state[f"blocks.{block}.{i}.bias"], padding=1)
            x = F.relu(normalised(x, f"blocks.{block}.{i + 1}"))
        x = x.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).amax(dim=(3, 5))
    x = normalised(x.flatten(1) @ state["linear.weight"].T + state["linear.bias"], "bn")
    features = network(images)
    torch.testing.assert_close(features, F.relu(x) if last_relu else x, rtol=1e-4, atol=1e-5)
    assert features.shape == (3, network.feature_dim) == (3, dim)
    assert (features < 0).any() == (not last_relu)


def test_without_the_last_relu_features_are_centred() -> None:
    torch.manual_seed(0)
    features = CNN4(1, last_relu=False)(torch.randn(40, 1, 28, 28))
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(128), rtol=0, atol=1e-5)
    torch.testing.assert_close(features.var(dim=0, unbiased=False), torch.ones(128), rtol=0, atol=1e-2)


@pytest.mark.parametrize("feature_dim", [1, 3, 200])
def test_a_last_linear_layer_sets_the_dimension(feature_dim: int) -> None:
    torch.manual_seed(0)
    usual = CNN4(1)
    torch.manual_seed(0)
    network = encoder("cnn4", 1, feature_dim=feature_dim)
    images = torch.randn(5, 1, 28, 28)
    features = network(images)
    assert features.shape == (5, network.feature_dim) == (5, feature_dim)
    # Its other layers start like those of the network without it.
    torch.testing.assert_close(features, F.linear(usual(images), network.embedding.weight, network.embedding.bias))


@pytest.mark.parametrize(("make", "before", "dim"), [(CNN4, 32, 128), (CNN8, 64, 256)])
def test_how_its_weights_start(make: type[ConvolutionalEncoder], before: int, dim: int) -> None:
    torch.manual_seed(0)
    network = make(1)
    for layer, bound in (
        (network.blocks[1][0], (6 / (9 * before)) ** 0.5),
        (network.linear, (6 / (3136 + dim)) ** 0.5),  # 3136 = 64 · 7² = 196 · 4²
    ):
        largest = float(layer.weight.detach().abs().max())
        assert 0.99 * bound < largest <= bound
        assert float(layer.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)


@pytest.mark.parametrize("size", [8, 16, 28, 32, 45])
@pytest.mark.parametrize(("make", "side"), [(CNN4, 7), (CNN8, 4)])
def test_other_sizes_are_brought_to_its_own(make: type[ConvolutionalEncoder], side: int, size: int) -> None:
    torch.manual_seed(0)
    network = make(2).eval()
    images = torch.randn(2, 2, size, size + 4)
    maps = F.adaptive_avg_pool2d(network.blocks(images), side)
    expected = network.activation(network.bn(network.linear(maps.flatten(1))))
    torch.testing.assert_close(network(images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", range(1, 16))
def test_area_averages_are_those_of_adaptive_pooling(size: int) -> None:
    x = torch.randn(1, size, generator=torch.Generator().manual_seed(size))
    torch.testing.assert_close(x @ area_averages(size, 7).T, F.adaptive_avg_pool1d(x, 7))
