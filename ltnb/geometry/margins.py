"""How far every class is from being taken for another: margins of angle, after PAL."""

import torch
from torch import Tensor

from ltnb.geometry.inputs import labelled_rows, rows
from ltnb.geometry.means import row_norms


def _unit(vectors: Tensor) -> Tensor:
    """Rows of unit length; a zero row, which has no direction, stays zero."""
    lengths = row_norms(vectors)
    return vectors / lengths.where(lengths > 0, 1)


def sample_margins(features: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """γ_i = cos(w_y, x_i) − max_{j≠y} cos(w_j, x_i), with y = y_i.

    The sample margin of PAL (Zhou et al., ICML 2022), for prototypes and features on the sphere. Lengths and biases
    play no part, so that margins of one classifier compare with those of another; a linear classifier decides by them
    as well, and may be right where the margin is negative.

    Args:
        features: x (N, d), any floating dtype.
        labels: y (N,), integers in 0 … K−1.
        weight: w (K, d), a classifier's vectors or prototypes, K at least 2.

    Returns:
        (N,) float64 in [−2, 2], positive where the own prototype is the nearest. 0 for a zero feature, whose cosine
        counts as 0 with every prototype, as that of a zero prototype does.

    Raises:
        ValueError: K < 2; a label outside 0 … K−1; a class without a sample (named); `features` and `weight` differ
            in d; a row that is not finite (the first is named).
    """
    weight = rows("weight", weight)
    features, labels, _ = labelled_rows(features, labels, len(weight))
    if features.shape[1] != weight.shape[1]:
        raise ValueError(
            f"features and weight must have one dimension d, got {features.shape[1]} and {weight.shape[1]}"
        )
    cosines = (_unit(features) @ _unit(weight).T).clamp_(-1, 1)
    own = cosines.gather(1, labels[:, None]).squeeze(1)
    return own - cosines.scatter(1, labels[:, None], -torch.inf).amax(dim=1)


def class_margins(features: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """γ_k = min_{i: y_i = k} γ_i, with γ_i of `sample_margins`: the margin of each class's worst sample.

    Their minimum γ_min is at most K/(K−1), reached when every feature lies at its own vertex of a regular simplex (PAL,
    Lemma 3.1), and under anchored prototypes this is where training is headed for whatever the class counts (Theorem
    4.1).

    Args:
        features, labels, weight: as in `sample_margins`.

    Returns:
        (K,) float64 in [−2, 2].

    Raises:
        ValueError: as in `sample_margins`.
    """
    margins = sample_margins(features, labels, weight)
    smallest = margins.new_full((len(weight),), torch.inf)
    return smallest.scatter_reduce_(0, labels.long(), margins, reduce="amin")
