"""k-positive contrastive loss (KCL; Kang et al., ICLR 2021): every query gets equally many positives of its class."""

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_class_indices, check_positive, check_reduction, check_unit_rows
from ltnb.losses.partition import log_partition


def draw_positives(y: Tensor, key_labels: Tensor, *, number: int, generator: torch.Generator | None) -> Tensor:
    """Pᵢ: up to `number` keys of each query's class, without replacement and without the query's own key i.

    Every set of that size is equally likely, and queries draw independently of each other. A class with fewer further
    keys gives them all.

    Args:
        y: (N,) integer labels of the queries, any values.
        key_labels: (M,) integer labels of the keys, M ≥ N; the first N are the queries' own other views and equal y.
        number: k ≥ 1; 6 in the released code of TSC (Li et al., CVPR 2022), which reimplements this loss.
        generator: source of the draws, on the device of y; None is torch's own.

    Returns:
        (N, M) bool on the device of y. Nothing is read back from an accelerator.

    Raises:
        ValueError: wrong shapes or types, fewer keys than queries, k < 1; on the CPU also own keys of another label.
    """
    check_class_indices("y", y, len(y))
    check_key_labels(y, key_labels)
    if not (isinstance(number, int) and number >= 1):
        raise ValueError(f"number must be an integer of at least 1, got {number!r}")
    candidates = y[:, None] == key_labels
    candidates.diagonal().fill_(False)
    # The largest random numbers of a row are a uniform draw; how many candidates there are is not known on the host.
    ranks = torch.rand(candidates.shape, generator=generator, device=y.device).masked_fill_(~candidates, -1)
    values, drawn = ranks.topk(min(number, len(key_labels)), dim=1)
    # Along one axis: of several, torch's deterministic mode writes out every place on an accelerator.
    places = (len(key_labels) * torch.arange(len(y), device=y.device)[:, None] + drawn).flatten()
    chosen = candidates.new_zeros(candidates.numel()).scatter_(0, places, (values >= 0).flatten())
    return chosen.view_as(candidates)


def k_positive_contrastive(
    z: Tensor,
    y: Tensor,
    keys: Tensor,
    key_labels: Tensor,
    positives: Tensor,
    *,
    temperature: float,
    reduction: str = "mean",
) -> Tensor:
    r"""k-positive contrastive loss of queries against the keys of a momentum encoder and its queue:

        ℒᵢ = −1/(1 + |Pᵢ|) Σ_{p ∈ {i} ∪ Pᵢ} log [ exp(zᵢ·k_p/τ) / Σ_{m ∈ all keys} exp(zᵢ·k_m/τ) ]

    Key i is the query's own other view, always a positive, and Pᵢ are the `positives` drawn for it: however large a
    class is, a query of it is pulled by no more than 1 + k keys.

    As in the released code of TSC (Li et al., CVPR 2022), which reimplements the loss, keys of the query's class that
    were *not* drawn stay in the denominator, and so push like any other key. That code's denominator with a queue is
    the own key and the queue; here the batch's other keys are in it as well and may be drawn, as they do and may in
    the version of that code for CIFAR, which has no queue but the batch.

    With queries and keys collapsed to the corners of a regular simplex, n keys of each of K classes, it is
    log n + log(1 + (K − 1) exp(−K/((K − 1)τ))) for each query, whichever positives are drawn.

    Args:
        z: (N, d) unit rows of the queries, float32, float64 or bfloat16.
        y: (N,) integer labels, any values.
        keys: (M, d) unit rows, M ≥ N: first the queries' own other views, in the order of z, then the filled part of
            the queue. With gradient if they ask for one; the method's keys do not.
        key_labels: (M,) integer labels of the keys, the first N equal to y.
        positives: (N, M) bool, Pᵢ, from `draw_positives`.
        temperature: τ > 0; 0.07 in the released code.
        reduction: "mean" over the queries, "sum", or "none": (N,). Every query has a positive, its own key.

    Returns:
        The loss in float32, or float64 if z or keys are.

    Raises:
        ValueError: wrong shapes or types, fewer keys than queries, τ ≤ 0, unknown reduction; on the CPU also a row of
            z or keys that is not unit, an own key of another label, a positive that is the own key or of another
            class. On an accelerator the latter are not looked at.
    """
    check_queries_and_keys(z, y, keys, key_labels)
    check_drawn_positives(y, key_labels, positives)
    check_positive("temperature", temperature)
    check_reduction(reduction)

    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(z.dtype, keys.dtype), torch.float32)
        z, keys, drawn = z.to(dtype), keys.to(dtype), positives.to(dtype)
        positive_sum = keys[: len(z)] + drawn @ keys
        positive_logit = torch.linalg.vecdot(z, positive_sum) / ((1 + drawn.sum(dim=1)) * temperature)
        log_denominator = log_partition(z, keys, z.new_zeros(len(keys)), temperature=temperature)
        return reduce_anchors(log_denominator - positive_logit, torch.ones_like(y, dtype=torch.bool), reduction)


def check_queries_and_keys(z: Tensor, y: Tensor, keys: Tensor, key_labels: Tensor) -> None:
    """Refuse queries (N, d) and keys (M, d) that are not unit rows of one length, or labels that do not fit them."""
    check_unit_rows("z", z)
    check_class_indices("y", y, len(z))
    check_unit_rows("keys", keys)
    if keys.shape[1] != z.shape[1]:
        raise ValueError(f"keys must have rows of length {z.shape[1]} like z, got shape {tuple(keys.shape)}")
    check_class_indices("key_labels", key_labels, len(keys))
    check_key_labels(y, key_labels)


def check_key_labels(y: Tensor, key_labels: Tensor) -> None:
    """Refuse labels of keys that do not begin with those of the queries, whose own keys come first."""
    check_class_indices("key_labels", key_labels, len(key_labels))
    if len(key_labels) < len(y):
        raise ValueError(f"keys must begin with the own keys of {len(y)} queries, got {len(key_labels)} keys")
    if y.device.type != "cpu":
        return
    other = y != key_labels[: len(y)]
    if other.any():
        row = int(other.nonzero()[0])
        raise ValueError(f"key_labels must begin with y, got {key_labels[row]} for query {row} of class {y[row]}")


def check_drawn_positives(y: Tensor, key_labels: Tensor, positives: Tensor) -> None:
    """Refuse anything but (N, M) bool that marks keys of the query's class other than its own key."""
    shape = (len(y), len(key_labels))
    if positives.shape != shape or positives.dtype != torch.bool:
        raise ValueError(
            f"positives must be bool of shape {shape}, got shape {tuple(positives.shape)} of {positives.dtype}"
        )
    if positives.device.type != "cpu":
        return
    if positives.diagonal().any():
        row = int(positives.diagonal().nonzero()[0])
        raise ValueError(f"positives must not hold a query's own key, which is one anyway, got it for query {row}")
    wrong = positives & (y[:, None] != key_labels)
    if wrong.any():
        row, key = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"positives must be of the query's class, got key {key} of class {key_labels[key]} for query {row} "
            f"of class {y[row]}"
        )
