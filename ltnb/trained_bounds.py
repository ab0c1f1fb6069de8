"""BCL's contrast on trained projections beside the bounds of its Theorems 2 and 3."""

import pandas as pd
import torch
from torch.nn.functional import normalize

from ltnb import losses
from ltnb.runs import Run
from ltnb.theory.balanced_contrastive import class_averaged_bound, lower_bound


def contrast_and_bounds(run: Run) -> pd.DataFrame:
    """ℒᵢ ≥ log(1 + (K−1) exp((repulsionᵢ − attractionᵢ)/τ)), anchor by anchor, as means over the training images.

    The loss is `ltnb.losses.balanced_contrastive` with class-averaging and the run's prototypes, of the images without
    augmentation, each once. Theorem 2's right side is what the mean cosines of an anchor allow; see
    `ltnb.theory.balanced_contrastive.class_averaged_bound`.

    Returns:
        Columns method, seed, anchors (``by sample`` as the paper sums, ``by class`` where every class counts the same),
        loss, theorem_2 and theorem_3, each per anchor.

    Raises:
        ValueError: the run has no prototypes, or an anchor lies below Theorem 2's bound, which nothing can.
    """
    if "prototypes" not in run.embeddings:
        raise ValueError(f"{run.method} has no prototypes in its contrast; expected a run with class-complement")
    z, prototypes = (
        normalize(torch.from_numpy(run.embeddings[name]).double()) for name in ("train_projections", "prototypes")
    )
    y, temperature = torch.from_numpy(run.embeddings["train_labels"]).long(), run.params["method"]["temperature"]
    loss = losses.balanced_contrastive(z, y, prototypes, temperature=temperature, reduction="none")
    bound = torch.from_numpy(class_averaged_bound(z.numpy(), y.numpy(), prototypes.numpy(), temperature=temperature))
    if (loss < bound - 1e-9).any():
        raise ValueError(f"{run.method}, seed {run.seed}: anchor {int((bound - loss).argmax())} lies below its bound")
    num_classes = len(prototypes)
    by_class = len(y) / num_classes / torch.bincount(y, minlength=num_classes)[y].double()
    return pd.DataFrame(
        {
            "method": run.method,
            "seed": run.seed,
            "anchors": anchors,
            "loss": float((weights * loss).mean()),
            "theorem_2": float((weights * bound).mean()),
            "theorem_3": lower_bound(1, num_classes, temperature),
        }
        for anchors, weights in (("by sample", torch.ones_like(by_class)), ("by class", by_class))
    )
