import pytest
import torch
from torch.nn import functional as F

from ltnb.models.encoders import ResidualBlock, encoder


@pytest.mark.parametrize(("name", "parameters"), [("resnet8", 74_640), ("resnet20", 269_072), ("resnet32", 463_504)])
def test_parameter_counts(name: str, parameters: int) -> None:
    # Independent count: the stem, then for every block two convolutions and their batch norms (scale and shift).
    blocks = {"resnet8": 1, "resnet20": 3, "resnet32": 5}[name]
    expected, channels = 3 * 16 * 9 + 2 * 16, 16
    for width in (16, 32, 64):
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


def test_an_unknown_encoder_is_named() -> None:
    with pytest.raises(ValueError, match="'resnet9' is not known; expected one of resnet8, resnet20, resnet32"):
        encoder("resnet9", 3)
