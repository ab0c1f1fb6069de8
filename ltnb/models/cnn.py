"""The convolutional network of the papers' MNIST runs with wrong labels."""

import itertools

import torch
from torch import Tensor, nn

WIDTHS = (32, 64)
MAP_SIDE = 7  # of the last feature map: 28 pixels, halved twice
FEATURE_DIM = 128


class CNN4(nn.Module):
    """Two convolutions and a fully connected layer; with its classifier, the 4-layer CNN of PAL and Ma et al. (2020).

    Each 3×3 convolution (32, then 64 channels, with a bias) is followed by batch normalisation, a ReLU and 2×2 max
    pooling; the 7×7 maps of a 28×28 image go through a linear layer to 128 features, with batch normalisation and a
    ReLU. Weights start uniform: of convolutions as Kaiming's, of the linear layer as Xavier's.

    For PAL's prototypes the last ReLU is in the way, as in `ltnb.models.encoders.ResNet`. ``last_relu=False`` leaves it
    out: features are then centred, each of variance 1 over a batch. ``feature_dim`` maps the 128 features linearly to
    that many dimensions, and ``feature_norm`` ends with batch normalisation.
    """

    def __init__(
        self, in_channels: int, *, last_relu: bool = True, feature_dim: int | None = None, feature_norm: bool = False
    ) -> None:
        """Make a network for images of ``in_channels`` channels.

        With the defaults it has the same parameters as without the options, drawn from the same random numbers.
        """
        super().__init__()
        channels = (in_channels, *WIDTHS)
        self.blocks = nn.Sequential(*(_block(before, after) for before, after in itertools.pairwise(channels)))
        self.linear = nn.Linear(WIDTHS[-1] * MAP_SIDE**2, FEATURE_DIM)
        self.bn = nn.BatchNorm1d(FEATURE_DIM)
        self.activation = nn.ReLU() if last_relu else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        nn.init.xavier_uniform_(self.linear.weight)
        self.feature_dim = FEATURE_DIM if feature_dim is None else feature_dim
        self.embedding = nn.Identity() if feature_dim is None else nn.Linear(FEATURE_DIM, feature_dim)
        self.feature_norm = nn.BatchNorm1d(self.feature_dim) if feature_norm else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to features (N, ``feature_dim``).

        The linear layer is made for images of 28×28 pixels; maps of other sizes are averaged, or repeated, to 7×7.
        """
        maps = self.blocks(images)
        if maps.shape[2:] != (MAP_SIDE, MAP_SIDE):
            rows, columns = (area_averages(size, MAP_SIDE).to(maps) for size in maps.shape[2:])
            maps = rows @ maps @ columns.T
        features: Tensor = self.feature_norm(self.embedding(self.activation(self.bn(self.linear(maps.flatten(1))))))
        return features


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


def _block(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1), nn.BatchNorm2d(out_channels), nn.ReLU(), nn.MaxPool2d(2)
    )
