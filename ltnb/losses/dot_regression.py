"""Dot-regression (Yang et al., NeurIPS 2022), the loss that goes with a fixed simplex as the classifier."""

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_reduction, check_unit_rows
from ltnb.losses.labels import check_labels, has_seen_class


def dot_regression(features: Tensor, y: Tensor, weight: Tensor, *, reduction: str = "mean") -> Tensor:
    r"""Squared error of a feature's cosine with the anchor of its class:

        ℒᵢ = ½ (w_y·hᵢ − 1)²,     or with soft labels ½ Σ_k y_ik (w_k·hᵢ − 1)²

    The gradient is (w_y·h − 1) w_y: a pull towards the own anchor that fades as it is reached. Cross-entropy has it as
    well, and adds a push Σ_{k ≠ y} p_k w_k away from the others' anchors; here they exert no force, and so a rare class
    is not pushed about by the frequent ones. What keeps classes apart is that the anchors are. If h = x/‖x‖, x is moved
    by (w_y·h − 1)(w_y − (w_y·h) h)/‖x‖, at right angles to it and zero at h = ±w_y.

    The released code has (w_y·h − ‖w_y‖‖h‖)²/(2‖h‖) with the lengths held constant, of features that are normalised
    (after a batch norm) and of unit anchors, which is this. With MixUp it adds both classes' losses by their shares, as
    for soft labels here. As an option it gives anchors the lengths ‖w_k‖² = N/(K′n_k), n_k of the N samples in the
    batch being of class k and K′ its number of classes, which makes the mean one over classes.

    Args:
        features: (N, d) h, unit rows, float32, float64 or bfloat16.
        y: (N,) integer labels in [0, K), or (N, K) soft labels of any floating-point type.
        weight: (K, d) w, unit rows, an anchor a class (`ltnb.geometry.anchored_prototypes`). Anchors that are turned
            in training get their gradient.
        reduction: "mean" over the samples, "sum", or "none": (N,).

    Returns:
        The loss, in [0, 2] a sample, in float32, or float64 if features or weight are.

    Raises:
        ValueError: wrong shapes or types, unknown reduction; on the CPU also a row that is not unit, a label outside
            [0, K) and a soft label that is no distribution. On an accelerator these are not looked at, and a wrong
            label fails in the kernel.
    """
    check_unit_rows("features", features)
    check_unit_rows("weight", weight)
    if weight.shape[1] != features.shape[1]:
        raise ValueError(
            f"weight must have rows of length {features.shape[1]} like features, got shape {tuple(weight.shape)}"
        )
    check_labels(y, len(features), len(weight))
    check_reduction(reduction)
    dtype = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32)
    features, weight = features.to(dtype), weight.to(dtype)
    # Autocast would take these products back to half precision.
    with torch.autocast(features.device.type, enabled=False):
        if y.is_floating_point():
            losses = (y.to(dtype) * (features @ weight.T - 1).square()).sum(dim=1) / 2
        else:
            losses = (torch.linalg.vecdot(features, weight[y.long()]) - 1).square() / 2
    return reduce_anchors(losses, has_seen_class(y, None), reduction)
