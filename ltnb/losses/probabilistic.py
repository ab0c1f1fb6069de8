"""Probabilistic contrastive learning, ProCo (Du, Wang, Song & Huang, TPAMI 2024): infinitely many keys of every class.

The unit projections of class k are taken to follow a von Mises-Fisher law vMF(μ_k, κ_k), of density

    C_d(κ) exp(κ μ·x) on the unit sphere of ℝ^d,     C_d(κ) = κ^ν / ((2π)^{d/2} I_ν(κ)),  ν = d/2 − 1.

A law is handed around as its natural parameter a = κμ, which says all of it and has no direction to lack at κ = 0.
The order of a training step is `running_class_means`, `vmf_naturals`, `probabilistic_contrastive`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.bessel import log_bessel_of_square
from ltnb.losses.checks import (
    check_class_counts,
    check_class_indices,
    check_matrix,
    check_positive,
    check_reduction,
    check_unit_rows,
)
from ltnb.losses.labels import has_seen_class


def running_class_means(means: Tensor, counts: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    r"""Class means of all projections so far, those of a further batch B among them:

        n′_k = n_k + |B_k|,     m′_k = (1 − |B_k|/n′_k) m_k + (1/n′_k) Σ_{i ∈ B_k} zᵢ

    A class that the batch lacks keeps its row to the last bit; the row that a class without a projection so far holds,
    if finite, is replaced. Nothing has a gradient: the means are statistics, as in the released code. There a step's
    own projections are in the means that it is compared with, and means begin anew so that those in use span the epoch
    before and the current one; both are the caller's to do.

    Args:
        means: (K, d) m, floating-point.
        counts: (K,) n, how many projections went into each row, of any real type.
        z: (N, d) projections, float32, float64 or bfloat16, of every view that counts.
        y: (N,) integer labels in [0, K).

    Returns:
        m′ and n′, new tensors of the types of `means` and `counts`; computed in float64.

    Raises:
        ValueError: wrong shapes or types; on the CPU also a label outside [0, K).
    """
    check_matrix("means", means)
    check_matrix("z", z)
    num_classes, dim = means.shape
    _check_row_length("means", means, z)
    check_class_indices("y", y, len(z), num_classes)
    if counts.shape != (num_classes,) or counts.dtype == torch.bool or counts.is_complex():
        raise ValueError(
            f"counts must hold one number for each of {num_classes} classes, "
            f"got shape {tuple(counts.shape)} of {counts.dtype}"
        )
    y = y.long()
    sums = z.new_zeros(num_classes, dim, dtype=torch.float64).index_add(0, y, z.detach().double())
    batch_counts = sums.new_zeros(num_classes).index_add(0, y, sums.new_ones(len(z)))
    new_counts = counts.detach().double() + batch_counts
    divisors = new_counts.clamp(min=1)[:, None]
    new_means = means.detach().double() * (1 - batch_counts[:, None] / divisors) + sums / divisors
    return new_means.to(means.dtype), new_counts.to(counts.dtype)


def vmf_naturals(means: Tensor, *, largest_concentration: float = 1e5) -> Tensor:
    r"""Natural parameters of the von Mises-Fisher law of each class, from the mean m_k of its unit projections:

        a_k = κ_k μ_k,     μ = m/R,  κ = min(R (d − R²)/(1 − R²), κ_max),  R = ‖m‖

    μ is the estimate of maximum likelihood and κ the usual approximation of it (Banerjee et al., JMLR 2005). The
    released code leaves out the −R² beside d, which makes κ larger by a factor 1 + 1/(d − 1) at most. Its bound is
    κ_max = 10⁵ as well, which is what a class of a single projection gets: there R = 1 and the likelihood has no
    maximum. A mean of zero makes κ = 0, the uniform law.

    Args:
        means: (K, d) m, float32, float64 or bfloat16, of lengths from 0 to 1. A longer one counts as 1, so that
            rounding does no harm.
        largest_concentration: κ_max > 0.

    Returns:
        (K, d) a in float32, or float64 if `means` are; finite and with finite gradients.

    Raises:
        ValueError: `means` is no floating-point matrix or has d < 2, or κ_max is not positive.
    """
    check_matrix("means", means)
    if means.shape[1] < 2:
        raise ValueError(f"means must have rows of length ≥ 2, got shape {tuple(means.shape)}")
    check_positive("largest_concentration", largest_concentration)
    m = means.double()
    length: Tensor = torch.linalg.vector_norm(m, dim=1, keepdim=True)
    square = (length**2).clamp(max=1)
    numerator = means.shape[1] - square
    # The bound as a least denominator: neither R = 0 nor R = 1 divides by zero.
    denominator = torch.maximum(1 - square, length * numerator / largest_concentration)
    return (m * (numerator / denominator)).to(torch.promote_types(means.dtype, torch.float32))


def expected_logits(z: Tensor, naturals: Tensor, *, temperature: float) -> Tensor:
    r"""What a key of class k drawn from its von Mises-Fisher law contributes to the partition, in expectation:

        ℓ_ik = log E[exp(zᵢ·X/τ)] = log C_d(‖a_k‖) − log C_d(‖a_k + zᵢ/τ‖),     X ~ vMF with natural parameter a_k

    It is zᵢ·μ_k/τ plus what the spread adds: the former alone for κ → ∞, and the same for every direction of zᵢ at
    κ = 0. In three dimensions C_3(κ) = κ/(4π sinh κ). Never less than zᵢ·E[X]/τ, by Jensen's inequality.

    Args:
        z: (N, d) projections, float32, float64 or bfloat16; the formula holds for rows of any length.
        naturals: (K, d) a from `vmf_naturals`, with gradient if they ask for one (the released code has none).
        temperature: τ > 0.

    Returns:
        (N, K) ℓ in float32, or float64 if z or naturals are; the Bessel functions are computed in float64.

    Raises:
        ValueError: wrong shapes or types, τ ≤ 0.
    """
    check_matrix("z", z)
    check_matrix("naturals", naturals)
    _check_row_length("naturals", naturals, z)
    check_positive("temperature", temperature)
    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(z.dtype, naturals.dtype), torch.float32)
        z, naturals = z.to(dtype), naturals.to(dtype)
        # ‖a + z/τ‖² as it differs from ‖a‖², so that what the products round off enters one side alone.
        law = naturals.double().square().sum(dim=1)
        query = (z.double() / temperature).square().sum(dim=1)
        tilted = torch.add(law + query[:, None], (z @ naturals.T).double(), alpha=2 / temperature)
        order = z.shape[1] / 2 - 1
        # A sum that cancels may round to below zero.
        expected = log_bessel_of_square(order, tilted.clamp(min=0)) - log_bessel_of_square(order, law)
        return expected.to(dtype)


def probabilistic_contrastive(
    z: Tensor,
    y: Tensor,
    naturals: Tensor,
    class_counts: Tensor | Sequence[int],
    *,
    temperature: float,
    seen: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    r"""ProCo's loss, logit-adjusted cross-entropy of the expected logits:

        ℒᵢ = −log [ π_y E_iy / Σ_k π_k E_ik ],     E_ik = E[exp(zᵢ·X_k/τ)],  X_k ~ vMF with a_k,  π_k = n_k / Σ n

    The limit, of infinitely many keys drawn by the training set's frequencies, of a supervised contrastive loss whose
    positives are averaged inside the logarithm. With all classes at point masses (κ → ∞) on a regular simplex and
    zᵢ = μ_y it is log(1 + Σ_{k ≠ y} π_k/π_y exp(−K/((K − 1)τ))).

    As in the released code the prior has exponent 1, and the temperature is in the logits alone. That code starts each
    class at a law in a random direction and compares with it until an image comes; here such a class, not `seen`, is
    none of the partition, and its samples are left out, as anchors without a positive are elsewhere. With the batch's
    own projections in the means, as there, no sample is.

    Args:
        z: (N, d) unit rows, float32, float64 or bfloat16.
        y: (N,) integer labels in [0, K).
        naturals: (K, d) a from `vmf_naturals`, with gradient if they ask for one (the released code has none); rows
            of unseen classes may hold anything.
        class_counts: (K,) training images n_k of each class, all positive. A tensor on z's device is not copied.
        temperature: τ > 0.
        seen: (K,) bool, the classes with a law; None: all.
        reduction: "mean" over the samples of classes that are seen, their "sum", or "none": (N,), 0 for the others.
            If no class of the batch is seen the loss is zero and so is its gradient.

    Returns:
        The loss in float32, or float64 if z or naturals are.

    Raises:
        ValueError: wrong shapes or types, τ ≤ 0, unknown reduction; on the CPU also a row of z that is not unit, a
            label outside [0, K), a count that is not positive. On an accelerator norms and counts are not looked at,
            and a wrong label fails in the kernel, but −100, which torch skips.
    """
    check_unit_rows("z", z)
    check_matrix("naturals", naturals)
    num_classes = len(naturals)
    check_class_indices("y", y, len(z), num_classes)
    check_reduction(reduction)
    counts = check_class_counts(class_counts, num_classes)
    if seen is not None:
        if seen.shape != (num_classes,) or seen.dtype != torch.bool:
            raise ValueError(
                f"seen must hold one bool for each of {num_classes} classes, "
                f"got shape {tuple(seen.shape)} of {seen.dtype}"
            )
        # Before anything is computed from them: rows without a law may be NaN, which no later mask would stop.
        naturals = naturals.masked_fill(~seen[:, None], 0)
    logits = expected_logits(z, naturals, temperature=temperature)
    logits = logits + (counts / counts.sum()).log().to(logits.device, logits.dtype)
    if seen is not None:
        # Not −inf: where no class is seen at all, softmax would be NaN.
        logits = logits.masked_fill(~seen, torch.finfo(logits.dtype).min)
    losses = F.cross_entropy(logits, y.long(), reduction="none")
    return reduce_anchors(losses, has_seen_class(y, seen), reduction)


def _check_row_length(name: str, rows: Tensor, z: Tensor) -> None:
    if rows.shape[1] != z.shape[1]:
        raise ValueError(f"{name} must have rows of length {z.shape[1]} like z, got shape {tuple(rows.shape)}")
