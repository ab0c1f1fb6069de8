"""Supervised contrastive loss (Khosla et al., NeurIPS 2020, Eq. 2), SCL in the papers on long tails."""

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_class_indices, check_positive, check_reduction, check_unit_rows
from ltnb.losses.labels import class_numbers, class_totals
from ltnb.losses.partition import log_partition


def supervised_contrastive(
    z: Tensor,
    y: Tensor,
    *,
    temperature: float | Tensor,
    keys: Tensor | None = None,
    key_labels: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    r"""Supervised contrastive loss, the baseline that BCL balances and the loss that FeatRecon trains with.

        ℒᵢ = −1/|Pᵢ| Σ_{p ∈ Pᵢ} log [ exp(zᵢ·z_p/τᵢ) / Σ_{k ∈ B∖{i} ∪ S} exp(zᵢ·z_k/τᵢ) ],     Pᵢ = B_y∖{i} ∪ S_y

    B is the batch, S the further `keys` (FeatRecon's synthetic features; none in the plain loss), B_y and S_y those of
    the anchor's class. Keys are positives and negatives like any sample, but no anchors: the paper leaves open whether
    they are, and an anchor that no image stands behind would train nothing. Whose temperature a pair has is open as
    well; here it is the anchor's.

    An anchor without a positive is left out; `valid_anchors(y, key_labels=…)` says which. If none has one the loss is
    zero and so is its gradient.
    With all classes of n anchors on a regular simplex it is log(n − 1 + n(K − 1) exp(−K/((K − 1)τ))) for each anchor,
    the lower bound of BCL's Theorem 1 (Zhu et al., CVPR 2022, τ = 1 there).

    Args:
        z: (N, d) unit rows, float32, float64 or bfloat16; with two views both stacked, N = 2 · images.
        y: (N,) integer labels, any values.
        temperature: τ > 0 of all anchors, or a floating-point (N,), each anchor's own (`class_temperatures(…)[y]`).
        keys: (M, d) unit rows, with gradient if they ask for one, or None.
        key_labels: (M,) integer labels of the keys, given if and only if `keys` are.
        reduction: "mean" over the anchors that have a positive, "sum", or "none": (N,) with 0 for those without.

    Returns:
        The loss in float32, or float64 if z or keys are.

    Raises:
        ValueError: wrong shapes or types, τ ≤ 0, keys without labels, unknown reduction; on the CPU also a row of z or
            keys that is not unit. On an accelerator the rows' norms and a tensor of temperatures are not looked at.
    """
    check_unit_rows("z", z)
    check_class_indices("y", y, len(z))
    if isinstance(temperature, Tensor):
        _check_temperatures(temperature, len(z))
    else:
        check_positive("temperature", temperature)
    _check_keys(keys, key_labels, z.shape[1])
    check_reduction(reduction)

    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(z.dtype, torch.float32)
        if keys is not None:
            dtype = torch.promote_types(dtype, keys.dtype)
        z = z.to(dtype)
        all_keys, all_labels = z, y
        if keys is not None and key_labels is not None:
            all_keys, all_labels = torch.cat([z, keys.to(dtype)]), torch.cat([y, key_labels])
        classes = class_numbers(all_labels)
        class_sums, class_sizes = class_totals(all_keys, classes, len(all_keys))
        classes = classes[: len(z)]
        num_positives = class_sizes[classes] - 1
        positive_sum = class_sums.index_select(0, classes) - z
        anchors = z
        if isinstance(temperature, Tensor):
            # Each anchor brings its own: one matrix of logits serves them all.
            anchors, temperature = z / temperature.to(dtype)[:, None], 1.0
        positive_logit = torch.linalg.vecdot(anchors, positive_sum) / (num_positives.clamp(min=1) * temperature)
        itself = torch.arange(len(z), device=z.device)
        log_denominator = log_partition(
            anchors, all_keys, z.new_zeros(len(all_keys)), excluded=itself, temperature=temperature
        )
        return reduce_anchors(log_denominator - positive_logit, num_positives > 0, reduction)


def _check_temperatures(temperature: Tensor, num_samples: int) -> None:
    if temperature.shape != (num_samples,) or not temperature.is_floating_point():
        raise ValueError(
            f"temperature must be a number or hold one floating-point number for each of {num_samples} anchors, "
            f"got shape {tuple(temperature.shape)} of {temperature.dtype}"
        )
    if temperature.device.type != "cpu":
        return
    # Asked this way round, NaN is wrong as well.
    right = (temperature > 0) & temperature.isfinite()
    if not right.all():
        row = int((~right).nonzero()[0])
        raise ValueError(f"temperature must be positive and finite, got {temperature[row].item():.4g} of anchor {row}")


def _check_keys(keys: Tensor | None, key_labels: Tensor | None, dim: int) -> None:
    if (keys is None) != (key_labels is None):
        given, missing = ("keys", "key_labels") if key_labels is None else ("key_labels", "keys")
        raise ValueError(f"keys and key_labels go together, got {given} with {missing}=None")
    if keys is None or key_labels is None:
        return
    check_unit_rows("keys", keys)
    if keys.shape[1] != dim:
        raise ValueError(f"keys must have rows of length {dim} like z, got shape {tuple(keys.shape)}")
    check_class_indices("key_labels", key_labels, len(keys))
