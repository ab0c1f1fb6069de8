import math
from collections import Counter

import torch

from ltnb.losses.negatives import kept_apart, kept_by_batch


def test_pairs_are_kept_at_the_rate_each_for_itself():
    positive = torch.zeros(20_000, 3, dtype=torch.bool)
    positive[:, 0] = True
    kept = kept_apart(positive, 0.3, torch.Generator().manual_seed(0))
    assert kept[:, 0].all()
    # Of two negatives: both, one, or none, as independent draws have it.
    counts = Counter(map(tuple, kept[:, 1:].tolist()))
    for pair, count in counts.items():
        share = math.prod(0.3 if keeps else 0.7 for keeps in pair)
        assert abs(count - 20_000 * share) < 4 * math.sqrt(20_000 * share * (1 - share))
    assert len(counts) == 4


def test_a_batch_is_filled_up_to_its_share_of_the_classes():
    positive = torch.zeros(4, 10, dtype=torch.bool)
    positive[[0, 1, 2, 3], [2, 2, 5, 7]] = True
    generator = torch.Generator().manual_seed(0)
    for rate, size in ((0.05, 3), (0.29, 3), (0.3, 3), (0.4, 4), (0.65, 6), (0.99, 9)):
        kept = kept_by_batch(positive, rate, generator)
        assert kept.shape == (10,)
        assert kept[[2, 5, 7]].all()
        assert kept.sum() == size


def test_no_true_class_is_lost_to_a_low_rate():
    generator = torch.Generator().manual_seed(0)
    every_class = torch.eye(10, dtype=torch.bool)
    assert kept_by_batch(every_class, 0.1, generator).all()


def test_every_set_of_extra_classes_is_as_likely():
    positive = torch.zeros(1, 5, dtype=torch.bool)
    positive[0, 1] = True
    generator = torch.Generator().manual_seed(0)
    draws = 3000
    counts = Counter(tuple(kept_by_batch(positive, 0.6, generator).nonzero()[:, 0].tolist()) for _ in range(draws))
    assert set(counts) == {(0, 1, 2), (0, 1, 3), (0, 1, 4), (1, 2, 3), (1, 2, 4), (1, 3, 4)}
    for count in counts.values():
        assert abs(count - draws / 6) < 4 * math.sqrt(draws * 5 / 36)
