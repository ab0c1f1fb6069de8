"""The convolutional networks of the papers' MNIST and CIFAR-10 runs with wrong labels."""

import itertools
from typing import ClassVar

import torch
from torch import Tensor, nn


class ConvolutionalEncoder(nn.Module):
    """Blocks of convolutions, each block at half the resolution of the one before, and a fully connected layer.

    Each 3×3 convolution (with a bias) is followed by batch normalisation and a ReLU, each block by 2×2 max pooling; the
    last maps go through a linear layer, with batch normalisation and a ReLU. Weights start uniform: of convolutions as
    Kaiming's, of the linear layer as Xavier's; biases of both where torch starts them.

    For PAL's prototypes the last ReLU is in the way, as in `ltnb.models.encoders.ResNet`. ``last_relu=False`` leaves it
    out: features are then centred, each of variance 1 over a batch. ``feature_dim`` maps the linear layer's features
    linearly to that many dimensions, and ``feature_norm`` ends with batch normalisation.
    """

    widths: ClassVar[tuple[tuple[int, ...], ...]]  # of each block's convolutions
    map_side: ClassVar[int]  # of the last feature map, for images of the size that the network is made for
    linear_dim: ClassVar[int]  # features of the linear layer

    def __init__(
        self, in_channels: int, *, last_relu: bool = True, feature_dim: int | None = None, feature_norm: bool = False
    ) -> None:
        """Make a network for images of ``in_channels`` channels.

        With the defaults it has the same parameters as without the options, drawn from the same random numbers.
        """
        super().__init__()
        channels = (in_channels, *(block[-1] for block in self.widths))  # before the first block, after each
        self.blocks = nn.Sequential(*map(_block, channels, self.widths))
        self.linear = nn.Linear(channels[-1] * self.map_side**2, self.linear_dim)
        self.bn = nn.BatchNorm1d(self.linear_dim)
        self.activation = nn.ReLU() if last_relu else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        nn.init.xavier_uniform_(self.linear.weight)
        self.feature_dim = self.linear_dim if feature_dim is None else feature_dim
        self.embedding = nn.Identity() if feature_dim is None else nn.Linear(self.linear_dim, feature_dim)
        self.feature_norm = nn.BatchNorm1d(self.feature_dim) if feature_norm else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to features (N, ``feature_dim``).

        The linear layer is made for images of one size; maps of other sizes are averaged, or repeated, to its own.
        """
        maps = self.blocks(images)
        if maps.shape[2:] != (self.map_side, self.map_side):
            rows, columns = (area_averages(size, self.map_side).to(maps) for size in maps.shape[2:])
            maps = rows @ maps @ columns.T
        features: Tensor = self.feature_norm(self.embedding(self.activation(self.bn(self.linear(maps.flatten(1))))))
        return features


class CNN4(ConvolutionalEncoder):
    """For MNIST: two convolutions and a fully connected layer; with its classifier, 4 layers.

    That of PAL and Ma et al. (2020), for images of 28×28 pixels.
    """

    widths = ((32,), (64,))
    map_side = 7
    linear_dim = 128


class CNN8(ConvolutionalEncoder):
    """For CIFAR-10: six convolutions and a fully connected layer; with its classifier, 8 layers.

    That of PAL and Ma et al. (2020), for images of 32×32 pixels; their code does have 196 channels, not 192 or 256.
    """

    widths = ((64, 64), (128, 128), (196, 196))
    map_side = 4
    linear_dim = 256


def area_averages(size: int, bins: int) -> Tensor:
    """(bins, size) whose row i averages the places that the i-th of equal bins touches, as adaptive pooling does.

    As a matrix, since torch's own adaptive pooling has no deterministic gradient on an accelerator.

    >>> area_averages(3, 2)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """
    i, place = torch.arange(bins)[:, None], torch.arange(size)
    touched = (place >= i * size // bins) & (place * bins < (i + 1) * size)
    return touched / touched.sum(dim=1, keepdim=True)


def _block(in_channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((in_channels, *widths)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2))
