"""Corrections of a trained classifier for the long tail it was trained on: for evaluation, nothing is trained."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltnb.losses.checks import check_class_counts, check_matrix, check_non_negative


def adjusted_logits(logits: Tensor, class_counts: Tensor | Sequence[int], *, tau: float) -> Tensor:
    r"""Post-hoc logit adjustment (Menon et al., ICLR 2021): the training set's log prior is taken off,

        f_k(x) − τ log π_k,     π_k = n_k / Σ n

    Of a network trained with plain cross-entropy, f_k estimates log p(x | k) + log π_k up to a constant of x, and τ = 1
    leaves what a balanced test set asks for. One trained with `ltnb.losses.logit_adjusted_cross_entropy`, which adds in
    training what is taken off here, estimates that already and is evaluated without.

    Args:
        logits: (N, K) f, float32, float64 or bfloat16; of a cosine classifier after its scale.
        class_counts: (K,) training images n_k of each class, all positive.
        tau: τ ≥ 0; 0 leaves the logits as they are.

    Returns:
        (N, K) in float32, or float64 for float64 logits.

    Raises:
        ValueError: wrong shapes or types, τ < 0 or not finite; on the CPU also a count that is not positive.
    """
    check_matrix("logits", logits)
    check_non_negative("tau", tau)
    counts = check_class_counts(class_counts, logits.shape[1])
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(dtype) - tau * (counts / counts.sum()).log().to(logits.device, dtype)


def tau_normalised(weight: Tensor, *, exponent: float) -> Tensor:
    r"""τ-normalisation of a linear classifier (Kang et al., ICLR 2020): w_k/‖w_k‖^t, the paper's τ being t here.

    Vectors of frequent classes grow longer in training; t = 0 leaves them so, t = 1 makes all of them unit vectors.
    Logits are then w̃_k · x: the paper and its released code drop the bias. That code evaluates t = 0, 0.1, …, 2.

    Args:
        weight: w (K, d), one row a class, float32, float64 or bfloat16.
        exponent: t ≥ 0.

    Returns:
        (K, d) in float32, or float64 for a float64 weight.

    Raises:
        ValueError: not a floating-point matrix, t < 0 or not finite; on the CPU also a row that is zero.
    """
    check_matrix("weight", weight)
    check_non_negative("exponent", exponent)
    weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
    lengths = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
    if weight.device.type == "cpu" and (lengths == 0).any():
        row = int((lengths == 0).nonzero()[0, 0])
        raise ValueError(f"weight must have rows with a direction, got zero at row {row}")
    normalised: Tensor = weight / lengths**exponent
    return normalised
