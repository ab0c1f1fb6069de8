import pytest
import torch
from torch.nn import functional as F

from ltnb.models.encoders import ResidualBlock, encoder


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("resnet8", 74_640), ("resnet20", 269_072), ("resnet32", 463_504), ("resnet32-wide", 7_383_616)],
)
def test_parameter_counts(name: str, parameters: int) -> None:
    # Independent count: the stem, then for every block two convolutions and their batch norms (scale and shift).
    blocks = {"resnet8": 1, "resnet20": 3}.get(name, 5)
    widths = (64, 128, 256) if name == "resnet32-wide" else (16, 32, 64)
    channels = widths[0]
    expected = 3 * channels * 9 + 2 * channels
    for width in widths:
        for _ in range(blocks):
            expected += 9 * channels * width + 9 * width * width + 4 * width
            channels = width
    assert sum(p.numel() for p in encoder(name, 3).parameters()) == expected == parameters


@pytest.mark.parametrize("size", [8, 16, 32])
def test_features_are_64_dimensional_and_not_negative(size: int) -> None:
    network = encoder("resnet8", in_channels=1)
    features = network(torch.randn(5, 1, size, size))
    assert features.shape == (5, network.feature_dim) == (5, 64)
    assert (features >= 0).all()


def test_a_block_with_zero_weights_is_its_shortcut() -> None:
    block = ResidualBlock(4, 8, stride=2)
    for parameter in block.parameters():
        torch.nn.init.zeros_(parameter)
    x = torch.randn(2, 4, 6, 6)
    expected = torch.zeros(2, 8, 3, 3)
    expected[:, 2:6] = F.relu(x[:, :, ::2, ::2])
    torch.testing.assert_close(block(x), expected)


def test_without_the_last_relu_only_the_last_block_changes() -> None:
    torch.manual_seed(0)
    usual = encoder("resnet20", in_channels=1)
    torch.manual_seed(0)
    signed = encoder("resnet20", in_channels=1, last_relu=False)
    assert list(usual.state_dict()) == list(signed.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(usual.parameters(), signed.parameters(), strict=True))
    images = torch.randn(5, 1, 16, 16)
    maps, signed_maps = (network.stages(F.relu(network.bn(network.conv(images)))) for network in (usual, signed))
    assert (signed_maps < 0).any()
    torch.testing.assert_close(F.relu(signed_maps), maps)
    # The shortcut, after the ReLU of the block before, starts features off positive; the block can outweigh it.
    torch.nn.init.constant_(signed.stages[-1].bn2.bias, -9)
    assert (signed(images) < 0).all()


def test_the_wide_one_is_resnet32_in_four_times_the_channels() -> None:
    usual, wide = encoder("resnet32", in_channels=3), encoder("resnet32-wide", in_channels=3)
    assert list(usual.state_dict()) == list(wide.state_dict())
    for (name, narrow), parameter in zip(usual.named_parameters(), wide.parameters(), strict=True):
        out_channels, *of_each = narrow.shape
        if of_each and name != "conv.weight":  # the stem's inputs are the image's channels
            of_each[0] *= 4
        assert parameter.shape == (4 * out_channels, *of_each), name
    shapes: list[torch.Size] = []
    for block in wide.stages[4::5]:
        block.register_forward_hook(lambda _, __, maps: shapes.append(maps.shape))
    features = wide(torch.randn(2, 3, 32, 32))
    assert shapes == [(2, 64, 32, 32), (2, 128, 16, 16), (2, 256, 8, 8)]
    assert features.shape == (2, wide.feature_dim) == (2, 256)


@pytest.mark.parametrize("feature_dim", [1, 2, 3, 100])
def test_a_last_linear_layer_sets_the_dimension(feature_dim: int) -> None:
    torch.manual_seed(0)
    usual = encoder("resnet8", in_channels=1)
    torch.manual_seed(0)
    network = encoder("resnet8", in_channels=1, feature_dim=feature_dim)
    images = torch.randn(5, 1, 8, 8)
    features = network(images)
    assert features.shape == (5, network.feature_dim) == (5, feature_dim)
    # Its other layers start like those of the encoder without it.
    torch.testing.assert_close(features, F.linear(usual(images), network.embedding.weight, network.embedding.bias))
    added = sum(p.numel() for p in network.parameters()) - sum(p.numel() for p in usual.parameters())
    assert added == 65 * feature_dim


def test_the_options_do_not_disturb_the_default() -> None:
    torch.manual_seed(0)
    network = encoder("resnet8", in_channels=1)
    # Drawn with this seed before there were options: the weights, and where they left the generator.
    assert float(network.conv.weight.detach().double().sum()) == pytest.approx(6.304341749753803, abs=1e-6)
    assert float(torch.rand(())) == pytest.approx(0.008696019649505615, abs=1e-7)


@pytest.mark.parametrize("feature_dim", [0, -2])
def test_a_dimension_below_one_is_named(feature_dim: int) -> None:
    with pytest.raises(ValueError, match=f"feature_dim must be at least 1.* got {feature_dim}"):
        encoder("resnet8", 1, feature_dim=feature_dim)


def test_an_unknown_encoder_is_named() -> None:
    with pytest.raises(ValueError, match=r"'resnet9' is not known; expected one of resnet8, .*, resnext50$"):
        encoder("resnet9", 3)
