"""Time to draw as many synthetic features as a long tail lacks, against a plain loop over the features.

Class k has n₁ ρ^(−(k−1)/(K−1)) samples with ρ = 100 and is filled up to the n₁ of the largest class, in 128 dimensions.
The loop draws one feature after the other: its angle from scipy (the incomplete beta function for the uniform law,
`truncnorm` for the other), its direction from the equations. The two take turns; processor time of the fastest round of
each.

    python benchmarks/synthetic_features.py
"""

import math
import platform
from collections.abc import Callable
from time import process_time

import numpy as np
import scipy
import torch
from scipy.special import betainc, betaincinv
from scipy.stats import truncnorm
from torch import Tensor

from ltnb.geometry import largest_common_radius, truncated_normal_in_cap, uniform_in_cap

DIM = 128
LARGEST = {10: 200, 100: 50}
IMBALANCE = 100
MEAN, STD = 0.5, 0.15
ROUNDS = 5


def missing_classes(num_classes: int) -> Tensor:
    """The class of each feature that is missing."""
    steps = torch.arange(num_classes) / (num_classes - 1)
    counts = (LARGEST[num_classes] * IMBALANCE**-steps).long().clamp(min=1)
    return torch.arange(num_classes).repeat_interleave(LARGEST[num_classes] - counts)


def uniform_angle(radius: float, random: np.random.Generator) -> float:
    half = (DIM - 1) / 2
    inside = betainc(half, 0.5, math.sin(radius) ** 2)
    return math.asin(math.sqrt(betaincinv(half, 0.5, random.uniform() * inside)))


def truncated_normal_angle(radius: float, random: np.random.Generator) -> float:
    bounds = -MEAN / STD, (radius - MEAN) / STD
    return float(truncnorm.rvs(*bounds, loc=MEAN, scale=STD, random_state=random))


def feature_by_feature(
    centres: Tensor, radii: Tensor, angle_of: Callable[[float, np.random.Generator], float]
) -> np.ndarray:
    random = np.random.default_rng(0)
    drawn = []
    for centre, radius in zip(centres.numpy(), radii.tolist(), strict=True):
        angle = angle_of(radius, random)
        direction = random.normal(size=DIM)
        direction -= direction @ centre * centre
        drawn.append(math.cos(angle) * centre + math.sin(angle) * direction / np.linalg.norm(direction))
    return np.stack(drawn)


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print(
        f"torch {torch.__version__}, scipy {scipy.__version__}, {platform.machine()}, one thread, "
        f"{DIM} dimensions, float32, fastest of {ROUNDS} rounds"
    )
    print(f"{'law':<17} {'K':>4} {'features':>9} {'ltnb ms':>8} {'loop ms':>8} {'ratio':>6}")
    for num_classes in LARGEST:
        classes = missing_classes(num_classes)
        centres = torch.nn.functional.normalize(torch.randn(num_classes, DIM, generator=generator), dim=1)[classes]
        radii = torch.full((len(classes),), largest_common_radius(num_classes))
        means, stds = torch.full_like(radii, MEAN), torch.full_like(radii, STD)
        laws: dict[str, dict[str, Callable[[], object]]] = {
            "uniform": {
                "ltnb": lambda c=centres, r=radii: uniform_in_cap(c, r, generator),
                "loop": lambda c=centres, r=radii: feature_by_feature(c, r, uniform_angle),
            },
            "truncated normal": {
                "ltnb": lambda c=centres, r=radii, m=means, s=stds: truncated_normal_in_cap(c, r, m, s, generator),
                "loop": lambda c=centres, r=radii: feature_by_feature(c, r, truncated_normal_angle),
            },
        }
        for law, ways in laws.items():
            seconds = dict.fromkeys(ways, float("inf"))
            for _ in range(ROUNDS):
                for name, way in ways.items():
                    start = process_time()
                    way()
                    seconds[name] = min(seconds[name], process_time() - start)
            print(
                f"{law:<17} {num_classes:>4} {len(classes):>9} {1e3 * seconds['ltnb']:>8.1f} "
                f"{1e3 * seconds['loop']:>8.1f} {seconds['loop'] / seconds['ltnb']:>6.0f}"
            )


if __name__ == "__main__":
    main()
