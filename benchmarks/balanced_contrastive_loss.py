"""Time and memory of BCL's loss, forward and backward, against the plain vectorised way.

Both see the same 2×256 embeddings of 128 with long-tailed labels, and prototypes of K classes. The two take turns and
the fastest of many turns counts, because whatever else runs on the machine only ever adds time. Memory is the most that
tensors made on the way hold together, gradients included, inputs not; "buffer" is one (2×256, K) matrix of logits.

    python benchmarks/balanced_contrastive_loss.py [--threads 2] [--seconds 5]
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from allocations import peak_bytes
from hardware import processor
from torch import Tensor
from torch.nn.functional import normalize

from ltnb.losses import balanced_contrastive

NUM_IMAGES, DIM, TEMPERATURE, IMBALANCE = 256, 128, 0.1, 100
NUM_CLASSES = (10, 100, 1000, 8142)
MIB = 2**20


def plain(z: Tensor, y: Tensor, prototypes: Tensor) -> Tensor:
    """BCL as one would write it: samples and prototypes in one (N, N + K) matrix, bincount, masks, logsumexp."""
    num_samples, num_classes = len(z), len(prototypes)
    keys = torch.cat([z, prototypes])
    key_labels = torch.cat([y, torch.arange(num_classes)])
    itself = torch.eye(num_samples, len(keys), dtype=torch.bool)
    positive = (y[:, None] == key_labels) & ~itself
    key_counts = torch.bincount(key_labels, minlength=num_classes)[key_labels]
    log_weights = -(key_counts - positive.int()).to(z.dtype).log()
    logits = z @ keys.T / TEMPERATURE
    log_denominator = (logits + log_weights).masked_fill(itself, -torch.inf).logsumexp(dim=1, keepdim=True)
    return -(((logits - log_denominator) * positive).sum(dim=1) / positive.sum(dim=1)).mean()


def ours(z: Tensor, y: Tensor, prototypes: Tensor) -> Tensor:
    return balanced_contrastive(z, y, prototypes, temperature=TEMPERATURE)


def long_tailed_batch(num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    prior = IMBALANCE ** (-torch.arange(num_classes) / (num_classes - 1))
    y = torch.multinomial(prior, NUM_IMAGES, replacement=True, generator=generator).repeat(2)
    z = normalize(torch.randn(len(y), DIM, generator=generator), dim=1)
    prototypes = normalize(torch.randn(num_classes, DIM, generator=generator), dim=1)
    return z.requires_grad_(), y, prototypes.requires_grad_()


def forward_backward(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor], batch: tuple[Tensor, Tensor, Tensor]
) -> tuple[float, tuple[Tensor, ...]]:
    z, y, prototypes = batch
    start = time.perf_counter()
    value = loss(z, y, prototypes)
    gradients = torch.autograd.grad(value, (z, prototypes))
    return time.perf_counter() - start, (value.detach(), *gradients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="threads torch may use (default: 2)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each number of classes (default: 5)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    print(
        f"torch {torch.__version__}, {processor()}, {torch.get_num_threads()} threads, float32, "
        f"2×{NUM_IMAGES} embeddings of {DIM}, fastest of so many turns"
    )
    print(
        f"{'classes':>8} {'plain ms':>9} {'ours ms':>9} {'ratio':>6} {'turns':>6}"
        f" {'plain MiB':>10} {'ours MiB':>9} {'ratio':>6} {'buffer MiB':>11}"
    )
    for num_classes in NUM_CLASSES:
        batch = long_tailed_batch(num_classes)
        for reference, result in zip(forward_backward(plain, batch)[1], forward_backward(ours, batch)[1], strict=True):
            torch.testing.assert_close(result, reference, rtol=1e-4, atol=1e-6)
        plain_times, our_times = [], []
        deadline = time.perf_counter() + arguments.seconds
        while time.perf_counter() < deadline:
            plain_times.append(forward_backward(plain, batch)[0])
            our_times.append(forward_backward(ours, batch)[0])
        fastest_plain, fastest = min(plain_times), min(our_times)
        plain_peak, our_peak = (peak_bytes(partial(forward_backward, loss, batch)) / MIB for loss in (plain, ours))
        print(
            f"{num_classes:>8} {fastest_plain * 1e3:>9.2f} {fastest * 1e3:>9.2f} "
            f"{fastest_plain / fastest:>6.2f} {len(our_times):>6} {plain_peak:>10.1f} {our_peak:>9.1f} "
            f"{plain_peak / our_peak:>6.2f} {len(batch[0]) * num_classes * 4 / MIB:>11.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
