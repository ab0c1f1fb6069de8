"""One training step of the default experiment against the network's own forward and backward pass.

    python benchmarks/training_step.py

For each method, interleaved: (a) a whole step as `ltnb.training` does it: augmentation of every view, all terms of the
loss, backward, optimiser; (b) the encoder alone on the same number of images, forward and backward. Minima over many
repeats, because other processes only ever add time. The share is 1 − b/a.
"""

import platform
import time
from pathlib import Path

import torch

from ltnb import params
from ltnb.data.augmentation import normalise
from ltnb.data.prepare import load, prepare
from ltnb.data.views import draw
from ltnb.methods.assembly import Method

REPEATS = 60
FILE = Path(__file__).parents[1] / "params.yaml"


def main() -> None:
    experiment = params.load(FILE)
    name = next(iter(experiment.datasets))
    folder = FILE.parent / "scratch" / "data" / name
    prepare(name, experiment.datasets[name], folder)
    dataset = load(folder)
    training = experiment.training
    torch.set_num_threads(training.threads)
    batch = dataset.train_images[: training.batch_size], dataset.train_labels[: training.batch_size]
    print(f"torch {torch.__version__}, {training.threads} threads, {platform.machine()}, batch {len(batch[0])}")
    print(f"{'method':<18}{'step':>10}{'network':>10}{'outside':>10}")
    for key, settings in experiment.methods.items():
        method = Method(settings, training.encoder, batch[0].shape[1], dataset.class_counts.tolist())
        optimizer = torch.optim.SGD(method.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(len(batch[0]) * len(method.views), *batch[0].shape[1:])

        def step(method=method, optimizer=optimizer, generator=generator) -> None:  # type: ignore[no-untyped-def]
            drawn = [draw(*batch, view, generator, num_classes=dataset.num_classes) for view in method.views]
            views = [normalise(view, dataset.mean, dataset.std) for view, _ in drawn]
            total = method.losses(views, [targets for _, targets in drawn], generator)["total"]
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            method.after_step()

        def network(method=method, images=images) -> None:  # type: ignore[no-untyped-def]
            method.encoder(images).sum().backward()
            method.zero_grad()

        best = {"step": float("inf"), "network": float("inf")}
        for repeat in range(REPEATS):
            for label, function in (("step", step), ("network", network)):
                start = time.perf_counter()
                function()
                if repeat >= 3:
                    best[label] = min(best[label], time.perf_counter() - start)
        share = 1 - best["network"] / best["step"]
        print(f"{key:<18}{1e3 * best['step']:>7.1f} ms{1e3 * best['network']:>7.1f} ms{share:>10.1%}")


if __name__ == "__main__":
    main()
