"""What a method makes of images without augmentation: accuracies, logits and where they lie."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from ltnb.data.augmentation import augment, normalise
from ltnb.data.feeding import Feed
from ltnb.data.long_tail import class_groups
from ltnb.data.prepare import Dataset
from ltnb.distributed import joined, num_processes, own_rows
from ltnb.methods.assembly import Method

_AT_ONCE = 500  # images that a process evaluates together


def accuracies(predictions: Tensor, labels: Tensor, class_counts: Tensor) -> dict[str, float]:
    """Return ``accuracy`` and ``accuracy_<group>`` for many, medium and few: shares of right predictions.

    The groups go by the class's number of *training* images, as the experiment cut its tail; a group without classes is
    absent.
    """
    right = (predictions == labels).double()
    result = {"accuracy": right.mean().item()}
    for group, classes in class_groups(class_counts).items():
        result[f"accuracy_{group}"] = right[torch.isin(labels, classes)].mean().item()
    return result


def memorisation(predictions: Tensor, labels: Tensor, clean_labels: Tensor) -> dict[str, float]:
    """Return what a network makes of training images some of which have a wrong label.

    ``train_accuracy_clean`` is the share of all images that are predicted as their true class. Of the images with a
    wrong label, ``memorised`` is the share that are predicted as that label and ``recovered`` the share that are
    predicted as their true class; both are absent where no label is wrong.
    """
    wrong = labels != clean_labels
    recognised = (predictions == clean_labels).double()
    result = {"train_accuracy_clean": recognised.mean().item()}
    if wrong.any():
        result["memorised"] = (predictions == labels)[wrong].double().mean().item()
        result["recovered"] = recognised[wrong].mean().item()
    return result


class Evaluation:
    """The images without augmentation, and what a method makes of them."""

    def __init__(self, dataset: Dataset, feeds: Mapping[str, Feed], device: torch.device) -> None:
        """Look at ``dataset``, whose images of the parts ``train`` and ``test`` come from ``feeds``, on ``device``."""
        self.dataset = dataset
        self.feeds = feeds
        self.sizes = {"train": len(dataset.train_labels), "test": len(dataset.test_labels)}
        self.untouched = Generator(device)

    @torch.no_grad()
    def _outputs(
        self, method: Method, part: str, function: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """Return what ``function`` makes of all images of a part, on the CPU; each process sees its share of them."""
        method.eval()
        together = torch.split(torch.arange(self.sizes[part]), _AT_ONCE * num_processes())
        pixels = self.feeds[part].batches([numbers[own_rows(len(numbers))] for numbers in together])
        outputs = []
        # Of a compiled encoder too: to compile it for the sizes of these batches takes longer than it would save, and
        # after a few sizes torch compiles no more.
        with torch.compiler.set_stance("force_eager"):
            for numbers, images in zip(together, pixels, strict=True):
                plain = augment(images, "none", self.untouched, self.dataset.settings.image_size).to(
                    torch.get_default_dtype()
                )
                plain = normalise(plain, self.dataset.mean.tolist(), self.dataset.std.tolist())
                outputs.append([joined([own], len(numbers))[0].cpu() for own in function(plain)])
        return tuple(map(torch.cat, zip(*outputs, strict=True)))

    def _predictions(self, method: Method, part: str) -> Tensor:
        return self._outputs(method, part, lambda images: (method.logits(images).argmax(dim=1),))[0]

    def _embedded(self, method: Method, part: str) -> dict[str, Tensor]:
        """Return ``features`` and, of a method that has them, ``projections``."""
        outputs = self._outputs(method, part, lambda images: tuple(a for a in method.embed(images) if a is not None))
        return dict(zip(("features", "projections"), outputs, strict=False))

    def watch(self, method: Method) -> dict[str, float]:
        """Return ``train_accuracy``; of the test images ``test_accuracy`` and its groups; and the classifier's shape.

        That is the mean length of its vectors and, in degrees, the smallest angle between two of them. With wrong
        training labels ``train_accuracy`` goes by those, and what `memorisation` says stands beside it.
        """
        dataset = self.dataset
        predictions = self._predictions(method, "train")
        train = {"train_accuracy": (predictions == dataset.train_labels).double().mean().item()}
        if dataset.train_clean_labels is not None:
            train |= memorisation(predictions, dataset.train_labels, dataset.train_clean_labels)
        predictions = self._predictions(method, "test")
        test = accuracies(predictions, dataset.test_labels, dataset.class_counts)
        weight = method.classifier.weight.detach().double().cpu()
        directions = torch.nn.functional.normalize(weight, dim=1)
        largest = (directions @ directions.T).fill_diagonal_(-1).amax().clamp(-1, 1)
        return {
            **train,
            **{f"test_{name}": value for name, value in test.items()},
            "classifier_norm": weight.norm(dim=1).mean().item(),
            "classifier_smallest_angle": largest.arccos().rad2deg().item(),
        }

    def metrics(self, method: Method, history: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Return ``metrics.json``: test accuracies (all, by group, by class), and how training ended.

        That is the loss and what `watch` says of the training images.
        After a second stage the first one's accuracies stand beside it, as ``first_stage_accuracy`` and its groups.
        """
        dataset, last = self.dataset, history[-1]
        predictions = self._predictions(method, "test")
        result = accuracies(predictions, dataset.test_labels, dataset.class_counts)
        for k in range(dataset.num_classes):
            of_class = dataset.test_labels == k
            result[f"accuracy_class_{k}"] = (predictions[of_class] == k).double().mean().item()
        if last["stage"] > 1:
            first = [row for row in history if row["stage"] == 1][-1]
            result |= {
                name.replace("test_", "first_stage_"): value
                for name, value in first.items()
                if name.startswith("test_accuracy")
            }
        watched = ("train_accuracy", "train_accuracy_clean", "memorised", "recovered")
        return {**result, **{name: last[name] for name in watched if name in last}, "train_loss": last["total"]}

    def projections(self, method: Method) -> dict[str, np.ndarray]:
        """Return where the images lie at a moment of training: projections, or features of a method without them."""
        arrays = {}
        for part in self.sizes:
            kind, rows = list(self._embedded(method, part).items())[-1]
            arrays[f"{part}_{kind}"] = rows.numpy()
        return arrays

    @torch.no_grad()
    def embeddings(self, method: Method) -> dict[str, np.ndarray]:
        """Return the arrays of ``embeddings.npz``; those that the method does not have are left out."""
        method.eval()
        dataset = self.dataset
        arrays: dict[str, Tensor | None] = {
            "train_labels": dataset.train_labels,
            "train_clean_labels": dataset.train_clean_labels,
            "test_labels": dataset.test_labels,
            "test_logits": self._outputs(method, "test", lambda images: (method.logits(images),))[0],
            "class_counts": dataset.class_counts,
            "classifier_weight": method.classifier.weight,
            "prototypes": method.prototypes(),
        }
        for part in self.sizes:
            arrays |= {f"{part}_{kind}": rows for kind, rows in self._embedded(method, part).items()}
        return {name: array.numpy(force=True) for name, array in arrays.items() if array is not None}
