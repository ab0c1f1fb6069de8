"""Where images come from: each source gives all its images and labels at their own size."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Source:
    """All images of a source, before any split."""

    images: Tensor  #: (N, C, H, W) uint8, 0 to 255
    labels: Tensor  #: (N,) int64
    class_names: tuple[str, ...]


def digits() -> Source:
    """1,797 handwritten digits of 8 × 8 pixels, part of scikit-learn (UCI optical recognition, test part).

    A pixel counts the 0 to 16 inked points of a 4 × 4 block of the scan, here stretched to 0 … 255.
    """
    from sklearn.datasets import load_digits  # a second of import that only `prepare` has to pay

    bunch = load_digits()
    blocks = torch.from_numpy(bunch.images)
    return Source(
        images=(blocks * (255 / 16)).round().to(torch.uint8).unsqueeze(1),
        labels=torch.from_numpy(bunch.target).to(torch.int64),
        class_names=tuple(str(name) for name in bunch.target_names),
    )


#: Source name, as in `params.yaml`, to the function that reads it.
SOURCES: dict[str, Callable[[], Source]] = {"digits": digits}
