"""FeatRecon's confidence supports on trained features: where they lie, what they hold, and what is drawn in them.

While a network trains, supports are estimated on the projections of its augmented images (`used`); here on the images
as they are, of a finished run or of a moment that the run kept. Everything is in the space of the contrast.

Where labels are wrong, supports are those of the given ones, and which classes are heads goes by how often each is
given, as in training. A class belongs to the few by its true images, or as its tail was cut.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Generator, Tensor

from ltnb import geometry
from ltnb.data.long_tail import class_groups
from ltnb.methods import FeatRecon
from ltnb.methods.synthesis import rectified_and_capped
from ltnb.runs import Run


def projections(run: Run, split: str, epoch: int | None = None) -> tuple[Tensor, Tensor]:
    """Unit rows (N, p) of the training or test images, at the end or at a kept epoch, and their classes (N,)."""
    moment = "" if epoch is None else f"_epoch_{epoch}"
    z = torch.from_numpy(run.embeddings[f"{split}_projections{moment}"]).double()
    return torch.nn.functional.normalize(z), torch.from_numpy(run.embeddings[f"{split}_labels"]).long()


def kept_epochs(run: Run) -> list[int]:
    """The epochs whose projections the run kept, in order."""
    stem = "train_projections_epoch_"
    return sorted(int(name.removeprefix(stem)) for name in run.embeddings if name.startswith(stem))


def given_counts(run: Run) -> list[int]:
    """(K,) how often each label is given: without noise the training images of each class.

    Raises:
        ValueError: noise has left a class no label. While a network trains, such a class has no support; here there
            would be no angle to its centre. The message names the run and the class.
    """
    counts: list[int] = run.params["noise"]["label_counts"] if "noise" in run.params else run.params["class_counts"]
    if 0 in counts:
        raise ValueError(
            f"{run.folder}: noise has left class {run.params['class_names'][counts.index(0)]} no label, so it has no "
            "support; expected a label of every class"
        )
    return counts


def supports(
    z: Tensor, labels: Tensor, label_counts: Sequence[int], settings: FeatRecon
) -> dict[str, geometry.Supports]:
    """Supports ``estimated`` from training features (Eq. 7), and those ``rectified`` and capped (Eqs. 8–10).

    Args:
        z: (N, p) unit rows of the training images.
        labels: (N,) their classes; every class needs an image.
        label_counts: (K,) as `given_counts` has them.
        settings: α, q, γ, what a head is, and whether there is a cap.
    """
    estimated = geometry.confidence_supports(z, labels, len(label_counts), quantile=settings.support_quantile)
    counts = torch.tensor(label_counts)
    return {
        "estimated": estimated,
        "rectified": rectified_and_capped(estimated, settings, counts, heads(label_counts, settings)),
    }


def used(run: Run) -> geometry.Supports | None:
    """The supports that the run's last epoch drew from, or ``None`` where it drew from none."""
    weights = load_file(run.folder / "model.safetensors")
    names = [f"contrast.synthesis.{part}" for part in geometry.Supports._fields]
    if not bool(weights.get("contrast.synthesis.estimated", torch.tensor(False))):
        return None
    centres, *angles = (weights[name].double() for name in names)
    return geometry.Supports(torch.nn.functional.normalize(centres), *angles)


def heads(label_counts: Sequence[int], settings: FeatRecon) -> Tensor:
    """The classes whose label is given to more than ``head_above`` training images."""
    return (torch.tensor(label_counts) > settings.head_above).nonzero().squeeze(1)


def angles_to_centres(z: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    """∠(zᵢ, μ_yᵢ) in degrees (N,), of unit rows z (N, p) and the centres (K, p) of their classes."""
    return (z * centres[labels]).sum(dim=1).clamp(-1, 1).arccos().rad2deg()


def radii(run: Run, settings: FeatRecon) -> pd.DataFrame:
    """How wide the supports are, and how wide they would have to be.

    Returns:
        Columns method, seed, class, class_count, support, radius in degrees. ``estimated`` and ``rectified`` as in
        `supports`; ``used`` as in `used`, where there is one; and ``needed``: the same share α of the class's *test*
        images lies within it of the estimated centre.
    """
    counts = run.params["class_counts"]
    made = supports(*projections(run, "train"), given_counts(run), settings)
    angles = angles_to_centres(*projections(run, "test"), made["estimated"].centres)
    labels = projections(run, "test")[1]
    needed = torch.stack([angles[labels == k].quantile(settings.support_quantile) for k in range(len(counts))])
    by_support = {**{name: of.radii.rad2deg() for name, of in made.items()}, "needed": needed}
    in_training = used(run)
    if in_training is not None:
        by_support["used"] = in_training.radii.rad2deg()
    return pd.DataFrame(
        {
            "method": run.method,
            "seed": run.seed,
            "class": k,
            "class_count": count,
            "support": name,
            "radius": float(of[k]),
        }
        for name, of in by_support.items()
        for k, count in enumerate(counts)
    )


def overlaps(run: Run, settings: FeatRecon) -> pd.DataFrame:
    """How classes overlap before and after their centres are rectified, on training and on test images.

    Returns:
        Columns method, seed, centres (``estimated`` or ``rectified``, always from training images), split; ``error``,
        the share of images nearer to another class's centre, every class counting the same; and ``tail_overlap``, how
        deep the caps that hold the share α of the images of two tail classes reach into each other, in degrees, on
        average over the pairs (missing with fewer than two tail classes).
    """
    made = supports(*projections(run, "train"), given_counts(run), settings)
    tail = class_groups(run.params["class_counts"]).get("few", torch.empty(0, dtype=torch.int64))
    rows = []
    for name, of in made.items():
        for split in ("train", "test"):
            z, labels = projections(run, split)
            pairs = image_overlaps(z, labels, of, settings.support_quantile)[tail][:, tail]
            rows.append(
                {
                    "method": run.method,
                    "seed": run.seed,
                    "centres": name,
                    "split": split,
                    "error": geometry.nearest_centre_error(z, labels, of),
                    "tail_overlap": float(pairs.nanmean()),
                }
            )
    return pd.DataFrame(rows)


def image_overlaps(z: Tensor, labels: Tensor, made: geometry.Supports, share: float) -> Tensor:
    """How deep the caps that hold this share of the images reach into each other, in degrees (K, K).

    The caps lie around the centres of given supports, and each is as wide as the images of its class ask for. The
    entry of two classes is negative where there is room between them, that of a class with itself is missing.

    Args:
        z: (N, p) unit rows, of any images.
        labels: (N,) their classes; every class needs an image.
        made: supports, of which the centres count.
        share: α in (0, 1].
    """
    angles = angles_to_centres(z, labels, made.centres)
    held = [angles[labels == k].quantile(share) for k in range(len(made.centres))]
    return geometry.cap_overlaps(made._replace(radii=torch.stack(held).deg2rad()))


def synthetic(made: geometry.Supports, settings: FeatRecon, number: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw ``number`` features (K · number, p) inside each support by the settings' law, and their classes."""
    labels = torch.arange(len(made.radii)).repeat_interleave(number)
    centres, widths = made.centres[labels], made.radii[labels]
    if settings.support_law == "uniform":
        return geometry.uniform_in_cap(centres, widths, generator), labels
    means, deviations = made.angle_means[labels], made.angle_stds[labels]
    return geometry.truncated_normal_in_cap(centres, widths, means, deviations, generator), labels


def nearest_class(z: Tensor, others: Tensor, labels: Tensor) -> Tensor:
    """The class of the nearest of other unit rows (M, p), with classes (M,), to each row of z (N, p)."""
    return labels[(z @ others.T).argmax(dim=1)]


class Neighbourhood(NamedTuple):
    """A tail class, its most similar head and what lies around them: the arguments of `ltnb.plots.support_map`."""

    head: int
    centre: NDArray[np.float64]  # (p,) of the tail's rectified support
    towards: NDArray[np.float64]  # (p,) of the head's
    points: dict[str, NDArray[np.float64]]  # (n, p) unit rows: head, tail, "tail, test" and, where drawn, synthetic
    caps: dict[str, tuple[NDArray[np.float64], float]]  # centre and radius in degrees, of the head and the tail


def neighbourhood(run: Run, epoch: int, tail: int, settings: FeatRecon, generator: Generator) -> Neighbourhood:
    """What lies around a tail class at a kept epoch; 40 features are drawn once the run has synthetic ones.

    Args:
        run: one that kept projections.
        epoch: one of `kept_epochs`.
        tail: a class.
        settings: of the supports, the sampling and from when on there are synthetic features.
        generator: of the draw.
    """
    z, labels = projections(run, "train", epoch)
    test_z, test_labels = projections(run, "test", epoch)
    made = supports(z, labels, given_counts(run), settings)
    candidates = heads(given_counts(run), settings)
    candidates = candidates[candidates != tail]  # wrong labels can make a head of a class of few images
    head = int(candidates[(made["estimated"].centres[candidates] @ made["estimated"].centres[tail]).argmax()])
    points = {"head": z[labels == head], "tail": z[labels == tail], "tail, test": test_z[test_labels == tail]}
    if epoch >= settings.first_synthetic_epoch(run.params["training"]["epochs"]):
        drawn, classes = synthetic(made["rectified"], settings, 40, generator)
        points["synthetic"] = drawn[classes == tail]
    centres, widths = made["rectified"].centres.numpy(), made["rectified"].radii.rad2deg().tolist()
    caps = {name: (centres[k], widths[k]) for name, k in (("head", head), ("tail", tail))}
    return Neighbourhood(
        head, centres[tail], centres[head], {name: rows.numpy() for name, rows in points.items()}, caps
    )


def reach(run: Run, settings: FeatRecon, generator: Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """How far synthetic features reach, and how far they would have to.

    100 features are drawn in each support that the run's last epoch used, or that its training images give.

    Returns:
        Two tables. Angles: columns seed, class, features (``training images``, ``synthetic features``, ``test images``)
        and angle in degrees to the centre of the class's support. Shares in [0, 1]: columns seed, class,
        ``synthetic_right``, the synthetic features whose nearest test image is of their class, and ``test_inside``, the
        test images inside the support.
    """
    train, test = projections(run, "train"), projections(run, "test")
    counts = given_counts(run)
    made = used(run) or supports(*train, counts, settings)["rectified"]
    drawn = synthetic(made, settings, 100, generator)
    groups = {"training images": train, "synthetic features": drawn, "test images": test}
    degrees = {name: angles_to_centres(z, labels, made.centres) for name, (z, labels) in groups.items()}
    angles = [
        pd.DataFrame({"seed": run.seed, "class": labels, "features": name, "angle": degrees[name]})
        for name, (_, labels) in groups.items()
    ]
    right = nearest_class(drawn[0], *test) == drawn[1]
    inside = degrees["test images"] <= made.radii[test[1]].rad2deg()
    shares = pd.DataFrame(
        {
            "seed": run.seed,
            "class": k,
            "synthetic_right": float(right[drawn[1] == k].double().mean()),
            "test_inside": float(inside[test[1] == k].double().mean()),
        }
        for k in range(len(counts))
    )
    return pd.concat(angles, ignore_index=True), shares
