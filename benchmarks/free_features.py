"""Count what the search over free features takes: evaluations of the loss, time, and how exactly it ends.

Each problem is searched from several starts; the table shows the mean number of evaluations and the time of one start,
the relative gap (0: certified global minimum) and how many starts agree. Evaluations do not depend on the machine's
speed, times do.

    python benchmarks/free_features.py [--starts 4] [--threads 1]
"""

import argparse
import time

import torch

from ltnb.free_features import minimise

# loss, class counts, dimension, settings
PROBLEMS = [
    ("supervised_contrastive", [5, 5, 5, 5], 3, {"temperature": 1.0}),
    ("supervised_contrastive", [100, 5, 5, 5], 3, {"temperature": 1.0}),
    ("supervised_contrastive", [100, 5, 5, 5], 3, {"temperature": 0.1}),
    ("supervised_contrastive", [300, 5, 5, 5], 3, {"temperature": 1.0}),
    ("supervised_contrastive", [64, 38, 23, 13, 8, 5, 3, 2, 2, 2], 9, {"temperature": 0.1}),
    ("balanced_contrastive", [100, 5, 5, 5], 3, {"temperature": 1.0, "prototypes": True}),
    # K − 1 dimensions are too few here: the loss falls further in 20, and only there the gap closes.
    ("balanced_contrastive", [64, 38, 23, 13, 8, 5, 3, 2, 1, 1], 9, {"temperature": 0.1, "prototypes": True}),
    ("balanced_contrastive", [64, 38, 23, 13, 8, 5, 3, 2, 1, 1], 20, {"temperature": 0.1, "prototypes": True}),
    ("bce_joint", [64, 1, 1, 1], 3, {"bias": True}),
    ("bce_joint", [64, 38, 23, 13, 8, 5, 3, 2, 1, 1], 9, {"bias": True, "radius": 5.0}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=4, help="searches for each problem (default: 4)")
    parser.add_argument("--threads", type=int, default=1, help="threads torch may use (default: 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float64, {arguments.starts} starts")
    print(f"{'loss':>24} {'K':>3} {'N':>4} {'d':>3} {'τ':>4} {'evaluations':>11} {'CPU s':>6} {'gap':>8} {'agree':>6}")
    for loss, counts, dim, settings in PROBLEMS:
        start = time.process_time()
        found = minimise(loss, counts, dim, starts=arguments.starts, **settings)
        seconds = (time.process_time() - start) / arguments.starts
        temperature = settings.get("temperature", 1 / settings.get("radius", 1.0))
        print(
            f"{loss:>24} {len(counts):>3} {sum(counts):>4} {dim:>3} {temperature:>4} "
            f"{found.evaluations // arguments.starts:>11} {seconds:>6.2f} {found.gap / found.loss:>8.0e} "
            f"{found.agreeing_starts:>3}/{arguments.starts}"
        )


if __name__ == "__main__":
    main()
