"""ProCo's class moments, followed by numpy over epochs in which classes are absent."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb import losses
from ltnb.methods import MethodSettings, ProCo
from ltnb.methods.assembly import Method
from ltnb.methods.contrasts import contrast
from ltnb.methods.moments import ProbabilisticContrast
from ltnb.models.encoders import encoder

COUNTS = [14, 6, 3, 1]
K, D, P = 4, 5, 6
# Batches of the epochs: class 3 comes in the second alone, class 2 not in the second, class 1 not in the third.
EPOCHS = [
    [[0, 0, 1, 0, 2, 1], [2, 0, 1]],
    [[0, 1, 0], [3, 0, 0, 1], [1, 0]],
    [[2, 3, 0, 0]],
]


def made(settings: MethodSettings) -> ProbabilisticContrast:
    network = encoder("resnet8", 1, feature_dim=D)
    torch.manual_seed(0)
    module = contrast(settings, network, COUNTS)
    assert isinstance(module, ProbabilisticContrast)
    return module.double()


def features_of(labels: list[int], number_of_views: int, seed: int) -> list[Tensor]:
    generator = Generator().manual_seed(seed)
    return [torch.randn(len(labels), D, generator=generator, dtype=torch.float64) for _ in range(number_of_views)]


def projections(module: ProbabilisticContrast, features: list[Tensor]) -> np.ndarray:
    rows: np.ndarray = module.projector(torch.cat(features[1:] or features)).detach().numpy()
    return rows


def mean_of(rows: list[np.ndarray]) -> np.ndarray:
    mean: np.ndarray = np.mean(rows, axis=0) if rows else np.zeros(P)
    return mean


@pytest.mark.parametrize("number_of_views", [1, 2, 3])
def test_both_means_and_the_term_by_hand_over_three_epochs(number_of_views: int) -> None:
    module = made(ProCo(views=("strong",) * number_of_views, projection_dim=P, temperature=0.3))
    last: dict[int, list[np.ndarray]] = {k: [] for k in range(K)}  # of the last epoch that had the class
    present: dict[int, list[np.ndarray]] = {k: [] for k in range(K)}  # of the current one
    seed = 0
    for number, epoch in enumerate(EPOCHS):
        for labels in epoch:
            seed += 1
            features, y = features_of(labels, number_of_views, seed), torch.tensor(labels)
            term = module([], features, [y] * number_of_views, nn.Linear(D, K), Generator())["contrast"]
            z = projections(module, features)
            contrasted = labels * max(1, number_of_views - 1)
            for row, k in zip(z, contrasted, strict=True):
                present[k].append(row)
            # The means that the loss compares with have the present batch in them.
            means = torch.tensor(np.stack([mean_of(last[k] + present[k]) for k in range(K)]))
            expected = losses.probabilistic_contrastive(
                torch.tensor(z),
                torch.tensor(contrasted),
                losses.vmf_naturals(means),
                COUNTS,
                temperature=0.3,
                seen=torch.tensor([bool(last[k] + present[k]) for k in range(K)]),
            )
            torch.testing.assert_close(term.detach(), expected, rtol=1e-6, atol=1e-9)
            module.after_step(nn.Identity())
            torch.testing.assert_close(module.means, means)
            assert module.sizes.tolist() == [len(last[k] + present[k]) for k in range(K)]
            alone = torch.tensor(np.stack([mean_of(present[k]) for k in range(K)]))
            torch.testing.assert_close(module.next_means, alone)
            assert module.next_sizes.tolist() == [len(present[k]) for k in range(K)]
        module.after_epoch(number + 1, len(EPOCHS))
        for k in range(K):  # a class that this epoch did not show keeps what it had
            last[k], present[k] = present[k] or last[k], []
        torch.testing.assert_close(module.means, torch.tensor(np.stack([mean_of(last[k]) for k in range(K)])))
        assert module.sizes.tolist() == [len(last[k]) for k in range(K)]
        assert not module.next_means.any()
        assert not module.next_sizes.any()
        stand_ins = module.prototypes(torch.empty(0))
        assert stand_ins.dtype == torch.float32
        for k in range(K):
            mean = mean_of(last[k])
            expected_row = mean / np.linalg.norm(mean) if last[k] else mean
            np.testing.assert_allclose(stand_ins[k].numpy(), expected_row, atol=1e-6)


def test_a_class_never_seen_is_none_of_the_partition() -> None:
    """With one class seen there is nothing to tell it from: the loss is zero."""
    module = made(ProCo(views=("strong",), projection_dim=P))
    features = features_of([2, 2, 2], 1, 0)
    term = module([], features, [torch.tensor([2, 2, 2])], nn.Linear(D, K), Generator())["contrast"]
    assert term.item() == pytest.approx(0, abs=1e-12)
    term.backward()
    gradient = module.projector.mlp[0].weight.grad
    assert gradient is not None
    assert gradient.isfinite().all()


def test_the_term_has_a_gradient_of_the_projections_and_none_of_the_means() -> None:
    module = made(ProCo(views=("strong",), projection_dim=P))
    z = F.normalize(torch.randn(4, P, dtype=torch.float64, generator=Generator().manual_seed(0)), dim=1)
    leaf = z.clone().requires_grad_()
    module.projector = nn.Identity()  # type: ignore[assignment]
    y = torch.tensor([0, 1, 0, 2])
    module([], [leaf], [y], nn.Linear(D, K), Generator())["contrast"].backward()
    fixed = z.clone().requires_grad_()
    means = torch.stack([z[y == k].mean(dim=0) if (y == k).any() else z.new_zeros(P) for k in range(K)])
    seen = torch.tensor([True, True, True, False])
    losses.probabilistic_contrastive(
        fixed, y, losses.vmf_naturals(means), COUNTS, temperature=0.1, seen=seen
    ).backward()
    torch.testing.assert_close(leaf.grad, fixed.grad)


def test_a_step_without_a_forward_pass_changes_nothing() -> None:
    module = made(ProCo(projection_dim=P))
    module.after_step(nn.Identity())
    assert not module.sizes.any()


def test_the_state_holds_both_means() -> None:
    first, second = (made(ProCo(projection_dim=P)) for _ in range(2))
    features, y = features_of([0, 1, 2, 0], 3, 0), torch.tensor([0, 1, 2, 0])
    first([], features, [y] * 3, nn.Linear(D, K), Generator())
    first.after_step(nn.Identity())
    second.load_state_dict(first.state_dict())
    for module in (first, second):
        module([], features_of([3, 1, 2, 0], 3, 1), [torch.tensor([3, 1, 2, 0])] * 3, nn.Linear(D, K), Generator())
        module.after_step(nn.Identity())
        module.after_epoch(1, 2)
    for name in ("means", "sizes", "next_means", "next_sizes"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert first.sizes.tolist() == [6, 4, 4, 2]


@pytest.mark.parametrize("changes", [{}, {"views": ("strong",)}, {"temperature": 0.001}, {"projection_dim": 2}])
@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [2, 2], [3, 0, 0, 0, 0]])
def test_a_method_trains_under_bfloat16_autocast(labels: list[int], changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    method = Method(ProCo(**changes), "resnet8", 1, COUNTS)
    method.begin(0)
    y = torch.tensor(labels)
    for _ in range(2):
        views = [torch.randn(len(y), 1, 8, 8) for _ in method.views]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            terms = method.losses(views, [y] * len(views), Generator())
        terms["total"].backward()
        method.after_step()
        assert all(term.isfinite() for term in terms.values())
        assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())
    assert method.contrast is not None
    assert method.contrast.means.dtype == torch.float64
