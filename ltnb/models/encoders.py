"""Encoders by name, and residual ones for small images (He et al., CVPR 2016, §4.2), as on CIFAR with a long tail.

Convolutional ones of the runs with wrong labels are in `ltnb.models.cnn`; ResNet-34, ResNet-50 and ResNeXt-50 are in
`ltnb.models.torchvision_resnets`.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ltnb.models.batch_norm import join_batch_norms
from ltnb.models.cnn import CNN4, CNN8
from ltnb.models.torchvision_resnets import TorchvisionResNet

WIDTHS = (16, 32, 64)


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions and a parameter-free shortcut: relu(x + f(x)), or x + f(x) without the last ReLU.

    Where the block halves the resolution, the shortcut subsamples its input and pads the new channels with
    zeros (option A of the paper, which the long-tail literature's ResNet-32 uses as well).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, *, last_relu: bool = True) -> None:
        """Make a block from ``in_channels`` to ``out_channels`` with the given ``stride``."""
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.stride = stride
        self.new_channels = out_channels - in_channels
        self.last_relu = last_relu

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, in_channels, H, W) to (N, out_channels, H/stride, W/stride)."""
        residual: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride > 1 or self.new_channels > 0:
            x = x[:, :, :: self.stride, :: self.stride]
            x = F.pad(x, (0, 0, 0, 0, self.new_channels // 2, self.new_channels - self.new_channels // 2))
        return F.relu(residual + x) if self.last_relu else residual + x


class ResNet(nn.Module):
    """A CIFAR-style residual network without its classifier: images to average-pooled features.

    Three stages of 16, 32 and 64 channels (``widths``), the second and third at half the resolution of the one before,
    6n + 2 layers in all with n blocks a stage. Convolutions start as Kaiming's normal of their inputs.

    The features come after a ReLU, so they are non-negative: no two of them are more than 90° apart, and none can lie
    at a vertex of a regular simplex around the origin, as prototypes do (PAL). Either option lifts that.
    ``last_relu=False`` ends the last block without its ReLU, so that features can have both signs, though most start
    off positive, because of the shortcut. ``feature_dim`` maps the pooled features linearly (with a bias) to that many
    dimensions, 2 or 3 of which can be drawn as they are. ``feature_norm`` ends with batch normalisation, which centres
    the features whatever came before.
    """

    def __init__(
        self,
        blocks: int,
        in_channels: int,
        *,
        widths: tuple[int, int, int] = WIDTHS,
        last_relu: bool = True,
        feature_dim: int | None = None,
        feature_norm: bool = False,
    ) -> None:
        """Make a network with ``blocks`` residual blocks a stage for images of ``in_channels`` channels.

        With the defaults it has the same parameters as without the options, drawn from the same random numbers.
        """
        super().__init__()
        self.conv = nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        stages: list[nn.Module] = []
        channels = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if block == 0 and stage > 0 else 1
                is_last = stage == len(widths) - 1 and block == blocks - 1
                stages.append(ResidualBlock(channels, width, stride, last_relu=last_relu or not is_last))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.feature_dim = channels if feature_dim is None else feature_dim
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        self.embedding = nn.Identity() if feature_dim is None else nn.Linear(channels, feature_dim)
        self.feature_norm = nn.BatchNorm1d(self.feature_dim) if feature_norm else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to features (N, ``feature_dim``), by default of the last stage's channels."""
        x = self.stages(F.relu(self.bn(self.conv(images))))
        features: Tensor = self.feature_norm(self.embedding(x.mean(dim=(2, 3))))
        return features


Encoder = ResNet | CNN4 | CNN8 | TorchvisionResNet

_MAKERS: dict[str, Callable[..., Encoder]] = {
    "resnet8": partial(ResNet, 1),
    "resnet20": partial(ResNet, 3),
    "resnet32": partial(ResNet, 5),
    # GLMC's "resnet32", which has 16 times the parameters of everyone else's.
    "resnet32-wide": partial(ResNet, 5, widths=(64, 128, 256)),
    "resnet34": partial(TorchvisionResNet, "resnet34"),
    "cnn4": CNN4,
    "cnn8": CNN8,
    "resnet50": partial(TorchvisionResNet, "resnet50"),
    "resnext50": partial(TorchvisionResNet, "resnext50"),
}
NAMES = tuple(_MAKERS)


def encoder(
    name: str,
    in_channels: int,
    *,
    last_relu: bool = True,
    feature_dim: int | None = None,
    feature_norm: bool = False,
) -> Encoder:
    """Return the encoder called ``name``, ready for images of ``in_channels`` channels.

    Args:
        name: one of ``NAMES``. For small images ``"resnet8"``, ``"resnet20"`` and ``"resnet32"`` (64 features; the last
            is the long-tail papers' on CIFAR), ``"resnet32-wide"`` (256; GLMC's) and ``"resnet34"`` (512; BCE3S's code,
            and PAL on CIFAR-100 with wrong labels); ``"cnn4"`` (128) and ``"cnn8"`` (256), of PAL on MNIST and CIFAR-10
            with wrong labels; for large images ``"resnet50"`` and ``"resnext50"`` (2048).
        in_channels: 1 for grey-scale images, 3 for colour.
        last_relu: whether the last block or layer ends with its ReLU, as in the papers' networks.
        feature_dim: a last linear layer to that many dimensions, at least 1; ``None`` for none.
        feature_norm: whether the features end with batch normalisation.

    Raises:
        ValueError: the name is not in ``NAMES``, or feature_dim < 1.

    >>> network = encoder("resnet32", in_channels=3)
    >>> sum(p.numel() for p in network.parameters()) + 64 * 10 + 10  # with a linear classifier of ten classes
    464154
    """
    if name not in NAMES:
        raise ValueError(f"encoder {name!r} is not known; expected one of {', '.join(NAMES)}")
    if feature_dim is not None and feature_dim < 1:
        raise ValueError(f"feature_dim must be at least 1, or None for no last linear layer; got {feature_dim}")
    network = _MAKERS[name](in_channels, last_relu=last_relu, feature_dim=feature_dim, feature_norm=feature_norm)
    join_batch_norms(network)
    return network.to(memory_format=torch.channels_last)  # faster on a CPU, by up to 1.4 here
