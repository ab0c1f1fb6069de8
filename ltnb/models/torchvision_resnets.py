"""Larger residual encoders (He et al., CVPR 2016, §4.1; Xie et al., CVPR 2017), built from torchvision's."""

from torch import Tensor, nn
from torch.nn import functional as F

TORCHVISION_NAMES = {"resnet34": "resnet34", "resnet50": "resnet50", "resnext50": "resnext50_32x4d"}


class TorchvisionResNet(nn.Module):
    """Torchvision's ResNet-34, ResNet-50 or ResNeXt-50 (32×4d) without its classifier, untrained.

    ``"resnet50"`` and ``"resnext50"`` have 2048 features and the stem of large images: a 7×7 convolution and max
    pooling, both of stride 2. ``"resnet34"`` is that of BCE3S's code, for images of 32×32 pixels: a 3×3 convolution of
    stride 1, no pooling, and 512 features. Where the shape changes, shortcuts have a 1×1 convolution (option B).

    Convolutions start as Kaiming's normal of their outputs, as torchvision has them; so does a stem that is made anew
    for images that are not of 3 channels. ResNet-34's 3×3 stem starts where torch starts any convolution, as in BCE3S's
    code. The code of Ma et al. (2020) has the same ResNet-34, but with convolutions that start as Kaiming's uniform of
    their inputs.

    Features come after a ReLU. ``last_relu=False`` ends the last block with x + f(x) instead, `ResidualSum`, as
    `ltnb.models.encoders.ResNet` does. ``feature_dim`` maps the pooled features linearly (with a bias) to that many
    dimensions, and ``feature_norm`` ends with batch normalisation.
    """

    def __init__(
        self,
        name: str,
        in_channels: int,
        *,
        last_relu: bool = True,
        feature_dim: int | None = None,
        feature_norm: bool = False,
    ) -> None:
        """Make the network ``name``, one of ``TORCHVISION_NAMES``, for images of ``in_channels`` channels.

        With the defaults it has the same parameters as without the options, drawn from the same random numbers.
        """
        from torchvision import models  # a second of import

        super().__init__()
        self.network = getattr(models, TORCHVISION_NAMES[name])(weights=None)
        if name == "resnet34":
            self.network.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
            self.network.maxpool = nn.Identity()
        elif in_channels != 3:
            self.network.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
            nn.init.kaiming_normal_(self.network.conv1.weight, mode="fan_out", nonlinearity="relu")
        if not last_relu:
            self.network.layer4[-1] = ResidualSum(self.network.layer4[-1])
        pooled_dim: int = self.network.fc.in_features
        self.network.fc = nn.Identity()
        self.feature_dim = pooled_dim if feature_dim is None else feature_dim
        self.embedding = nn.Identity() if feature_dim is None else nn.Linear(pooled_dim, feature_dim)
        self.feature_norm = nn.BatchNorm1d(self.feature_dim) if feature_norm else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to features (N, ``feature_dim``)."""
        features: Tensor = self.feature_norm(self.embedding(self.network(images)))
        return features


class ResidualSum(nn.Module):
    """x + f(x): a block of torchvision's that keeps the shape, with its weights and their names, less the last ReLU.

    Torchvision's blocks have one ReLU module for all of their activations, so it cannot be taken out of them.
    """

    def __init__(self, block: nn.Module) -> None:
        """Take over the layers of ``block``, a ``BasicBlock`` or a ``Bottleneck`` without ``downsample``."""
        super().__init__()
        for name, layer in block.named_children():
            self.add_module(name, layer)
        self.depth = sum(isinstance(layer, nn.Conv2d) for layer in block.children())

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        residual = x
        for i in range(1, self.depth + 1):
            residual = self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(residual))
            if i < self.depth:
                residual = F.relu(residual)
        return residual + x
