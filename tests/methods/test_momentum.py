"""Contrasts with a momentum encoder, step by step by hand: which keys there are, whose they are, what moves them."""

import copy
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from ltnb import geometry, losses
from ltnb.methods import KCL, TSC, CrossEntropy, MethodSettings, PaCo
from ltnb.methods.assembly import Method
from ltnb.methods.contrasts import contrast
from ltnb.methods.momentum import Comparison, MomentumContrast, TargetedContrast
from ltnb.models.encoders import Encoder, encoder

COUNTS = [14, 6, 3, 1]
K, D, P = 4, 5, 6
# Batches of several sizes; a class alone in one, classes that are absent, class 3 late.
BATCHES = [[0, 0, 1, 0, 2, 1], [0, 0], [1, 2, 0], [3, 0, 0, 1, 2]]
SYSTEMS: tuple[Any, ...] = (KCL, TSC, PaCo)


class Steps:
    """A contrast beside a copy of what it should be, taken through steps of training."""

    def __init__(self, settings: MethodSettings) -> None:
        torch.manual_seed(0)
        self.encoder: Encoder = encoder("resnet8", 1, feature_dim=D).double()
        module = contrast(settings, self.encoder, COUNTS)
        assert isinstance(module, MomentumContrast)
        self.module = module.double()
        self.classifier = nn.Linear(D, K).double()
        self.queue: list[tuple[list[float], int]] = []  # newest first, as long as they come

    def views(self, step: int) -> tuple[list[Tensor], Tensor]:
        generator = Generator().manual_seed(step)
        y = torch.tensor(BATCHES[step % len(BATCHES)])
        return [torch.randn(len(y), 1, 8, 8, generator=generator, dtype=torch.float64) for _ in range(2)], y

    def own_keys(self, step: int) -> Tensor:
        """What the momentum encoder makes of the second view, by a copy: the statistics of its BN are left alone."""
        views, _ = self.views(step)
        network, projector = copy.deepcopy(self.module.key_encoder), copy.deepcopy(self.module.key_projector)
        with torch.no_grad():
            keys: Tensor = projector(network(views[1]))
        return keys

    def forward(self, step: int) -> Tensor:
        views, y = self.views(step)
        terms = self.module(views, [self.encoder(views[0])], [y, y], self.classifier, Generator().manual_seed(step))
        assert set(terms) == {"contrast"}
        value: Tensor = terms["contrast"]
        return value

    def take(self, step: int) -> None:
        """A step of training: forward, backward, an update of the trained weights, and what follows it."""
        keys, (_, y) = self.own_keys(step), self.views(step)
        parameters = [*self.encoder.parameters(), *self.module.projector.parameters()]
        gradients = torch.autograd.grad(self.forward(step), parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    parameter -= 0.1 * gradient
        with torch.no_grad():
            self.module.after_step(self.encoder)
        self.queue = list(zip(keys.tolist(), y.tolist(), strict=True)) + self.queue


@pytest.mark.parametrize("size", [1, 4, 9, 100])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_queue_is_first_in_first_out_with_its_classes_and_only_what_is_filled_counts(
    system: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(system(queue_size=size, projection_dim=P))
    compared: list[tuple[Tensor, Tensor]] = []
    loss = steps.module.loss

    def watched(step: Comparison, *others: Any) -> Tensor:
        compared.append((step.keys.clone(), step.key_labels.clone()))
        return loss(step, *others)

    monkeypatch.setattr(steps.module, "loss", watched)
    for step, labels in enumerate(BATCHES):
        own, before = steps.own_keys(step), steps.queue[:size]
        steps.take(step)
        keys, key_labels = compared[-1]
        assert key_labels.tolist() == labels + [label for _, label in before]
        torch.testing.assert_close(keys, torch.tensor(own.tolist() + [key for key, _ in before], dtype=torch.float64))
        assert not keys.requires_grad
        # These keys are the first of the queue from the next step on.
        filled = steps.queue[:size]
        assert steps.module.queue_labels.tolist() == [k for _, k in filled] + [-1] * (size - len(filled))
        expected = torch.tensor([key for key, _ in filled], dtype=torch.float64)
        torch.testing.assert_close(steps.module.queue[: len(filled)], expected)
    torch.testing.assert_close(steps.module.queue.norm(dim=1)[: len(filled)].min(), torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.99])
def test_the_momentum_encoder_and_its_projector_follow_by_hand(momentum: float) -> None:
    steps = Steps(KCL(key_momentum=momentum, projection_dim=P))
    module = steps.module
    pairs = ((module.key_encoder, steps.encoder), (module.key_projector, module.projector))
    for follower, leader in pairs:  # copies, to the last bit
        assert all(torch.equal(a, b) for a, b in zip(follower.parameters(), leader.parameters(), strict=True))
    expected = [p.detach().clone() for follower, _ in pairs for p in follower.parameters()]
    for step in range(3):
        steps.take(step)
        leaders = [p.detach() for _, leader in pairs for p in leader.parameters()]
        expected = [momentum * old + (1 - momentum) * new for old, new in zip(expected, leaders, strict=True)]
        found = [p.detach() for follower, _ in pairs for p in follower.parameters()]
        for values, by_hand in zip(found, expected, strict=True):
            torch.testing.assert_close(values, by_hand, rtol=1e-12, atol=1e-14)
        if momentum == 0:
            assert all(torch.equal(a, b) for a, b in zip(found, leaders, strict=True))
        else:
            assert not all(torch.equal(a, b) for a, b in zip(found, leaders, strict=True))
    # Statistics are of the keys' own batches, and not averages of the trained encoder's.
    assert not torch.equal(module.key_encoder.bn.running_mean, steps.encoder.bn.running_mean)  # type: ignore[union-attr]


def kcl_by_hand(steps: Steps, step: int, queue: list[tuple[list[float], int]]) -> Tensor:
    """A batch whose classes have no more further keys than k: nothing is left to chance."""
    (first, _), y = steps.views(step)
    z = copy.deepcopy(steps.module.projector)(copy.deepcopy(steps.encoder)(first))
    keys = steps.own_keys(step).tolist() + [key for key, _ in queue]
    labels = y.tolist() + [label for _, label in queue]
    terms = []
    for i, query in enumerate(z.tolist()):
        logits = [sum(a * b for a, b in zip(query, key, strict=True)) / 0.1 for key in keys]
        log_sum = math.log(sum(math.exp(s) for s in logits))
        positive = [s for s, label in zip(logits, labels, strict=True) if label == y[i]]
        terms.append(log_sum - sum(positive) / len(positive))
    return torch.tensor(sum(terms) / len(terms), dtype=torch.float64)


def test_k_positive_contrast_by_loops() -> None:
    steps = Steps(KCL(num_positives=100, queue_size=5, projection_dim=P))
    for step in range(len(BATCHES)):
        expected = kcl_by_hand(steps, step, steps.queue[:5])
        torch.testing.assert_close(steps.forward(step).detach(), expected, rtol=1e-9, atol=1e-9)
        steps.module.step = None  # that was a look ahead: its keys stay out of the queue
        steps.take(step)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_term_is_the_pure_loss_of_the_expected_queries_and_keys(system: Any) -> None:
    changes: dict[str, float] = {"sample_weight": 0.05} if system is PaCo else {}
    steps = Steps(system(queue_size=7, projection_dim=P, temperature=0.2, **changes))
    for step in range(3):
        steps.take(step)
    (first, _), y = steps.views(3)
    features = copy.deepcopy(steps.encoder)(first)
    z = copy.deepcopy(steps.module.projector)(features)
    keys = torch.tensor(steps.own_keys(3).tolist() + [key for key, _ in steps.queue[:7]], dtype=torch.float64)
    labels = torch.tensor(y.tolist() + [k for _, k in steps.queue[:7]])
    if system is PaCo:
        expected = losses.parametric_contrastive(
            z,
            y,
            keys,
            labels,
            steps.classifier(features),
            COUNTS,
            sample_weight=steps.module.settings.sample_weight,
            temperature=0.2,
        )
    else:
        positives = losses.draw_positives(y, labels, number=6, generator=Generator().manual_seed(3))
        assert positives.any()
        if system is KCL:
            expected = losses.k_positive_contrastive(z, y, keys, labels, positives, temperature=0.2)
        else:
            module = steps.module
            assert isinstance(module, TargetedContrast)
            targets, assignment = module.targets, module.assignment
            expected = losses.targeted_contrastive(
                z, y, keys, labels, positives, targets, assignment, weight=0.2, temperature=0.2
            )
    torch.testing.assert_close(steps.forward(3), expected)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_targets_go_to_the_classes_whose_centres_have_the_least_way(momentum: float) -> None:
    steps = Steps(TSC(prototype_momentum=momentum, projection_dim=P))
    module = steps.module
    assert isinstance(module, TargetedContrast)
    gram = (module.targets @ module.targets.T).double()
    torch.testing.assert_close(gram, 4 / 3 * torch.eye(K).double() - 1 / 3, rtol=0, atol=1e-6)
    unused = torch.empty(0)
    torch.testing.assert_close(module.prototypes(unused), module.targets)  # in the order of the classes, to begin with
    centres = {k: module.centres.means[k].tolist() for k in range(K)}
    seen: set[int] = set()
    orders = []
    for step in range(len(BATCHES)):
        keys, (_, y) = steps.own_keys(step).tolist(), steps.views(step)
        steps.take(step)
        for k in set(y.tolist()):
            of_class = [key for key, label in zip(keys, y.tolist(), strict=True) if label == k]
            mean = [sum(column) / len(of_class) for column in zip(*of_class, strict=True)]
            if k in seen:
                mean = [momentum * a + (1 - momentum) * b for a, b in zip(centres[k], mean, strict=True)]
            centres[k] = [value / math.hypot(*mean) for value in mean]
            seen.add(k)
        torch.testing.assert_close(
            module.centres.means, torch.tensor([centres[k] for k in range(K)], dtype=torch.float64)
        )
        before = module.assignment.tolist()
        module.after_epoch(step + 1, 10)

        def ways(order: tuple[int, ...]) -> float:
            return sum(math.dist(centres[k], module.targets[order[k]].tolist()) ** 2 for k in range(K))

        best = min(itertools.permutations(range(K)), key=ways)
        assert module.assignment.tolist() == list(best)
        torch.testing.assert_close(module.prototypes(unused), torch.stack([module.targets[j] for j in best]))
        orders.append((before, list(best)))
    assert any(before != best for before, best in orders)


def test_targets_in_too_few_dimensions_for_a_simplex_are_spread_all_the_same() -> None:
    module = Steps(TSC(projection_dim=2)).module
    assert isinstance(module, TargetedContrast)
    cosines = (module.targets @ module.targets.T).double()
    torch.testing.assert_close(cosines.sort(dim=1).values[:, 0], -torch.ones(K).double(), rtol=0, atol=1e-3)  # a square
    assert sorted(geometry.assign_targets(module.centres.means, module.targets).tolist()) == list(range(K))


def method_of(settings: MethodSettings) -> Method:
    torch.manual_seed(0)
    return Method(settings, "resnet8", 1, COUNTS)


def batch_of(method: Method, labels: list[int], seed: int = 1) -> tuple[list[Tensor], list[Tensor]]:
    generator = Generator().manual_seed(seed)
    y = torch.tensor(labels)
    return [torch.randn(len(y), 1, 8, 8, generator=generator) for _ in method.views], [y] * len(method.views)


@pytest.mark.parametrize("system", SYSTEMS)
def test_nothing_trains_the_momentum_encoder(system: Any) -> None:
    method = method_of(system())
    assert method.contrast is not None
    given = {id(p) for p in method.begin(0)}
    keys = {name: p for name, p in method.named_parameters() if ".key_" in name}
    assert {name.split(".")[1] for name in keys} == {"key_encoder", "key_projector"}
    assert len(keys) == len(list(method.encoder.parameters())) + len(list(method.contrast.projector.parameters()))
    # Neither are they the optimiser's, whose weight decay would shrink them, nor does a gradient reach them.
    assert not any(id(p) in given or p.requires_grad for p in keys.values())
    trained = {name for name, p in method.named_parameters() if id(p) in given}
    assert {name.split(".")[0] for name in trained} == {"encoder", "first_classifier", "contrast"}
    for _ in range(2):  # with and without a queue
        views, targets = batch_of(method, [0, 0, 1, 2, 3, 0])
        method.losses(views, targets, Generator().manual_seed(2))["total"].backward()
        method.after_step()
    assert all(p.grad is None for p in keys.values())
    assert all(p.grad is not None for name, p in method.named_parameters() if name in trained)
    method.begin(1)
    assert not any(p.requires_grad for p in keys.values())
    method.begin(0)
    assert not any(p.requires_grad for p in keys.values())


@pytest.mark.parametrize("system", SYSTEMS)
def test_statistics_of_the_keys_move_in_the_first_stage_alone(system: Any) -> None:
    method = method_of(system(classification="cross-entropy", second_stage="retrain"))

    def statistics() -> dict[str, Tensor]:
        return {name: b.clone() for name, b in method.named_buffers() if "running" in name and ".key_" in name}

    assert {name.split(".")[1] for name in statistics()} == {"key_encoder", "key_projector"}
    for stage in (0, 1):
        method.begin(stage)
        method.train()
        before, state = statistics(), {name: b.clone() for name, b in method.contrast.state_dict().items()}  # type: ignore[union-attr]
        views, targets = batch_of(method, [0, 0, 1, 2, 3, 0])
        method.losses(views, targets, Generator().manual_seed(2))
        method.after_step()
        moved = [not torch.equal(before[name], now) for name, now in statistics().items()]
        assert all(moved) if stage == 0 else not any(moved)
        if stage == 1:  # nor does anything else that the contrast remembers
            assert all(torch.equal(state[name], now) for name, now in method.contrast.state_dict().items())  # type: ignore[union-attr]
        method.eval()
        before = statistics()
        method.logits(views[0])
        method.embed(views[0])
        assert all(torch.equal(before[name], now) for name, now in statistics().items())


def test_the_first_view_is_the_query_and_is_encoded_once() -> None:
    method = method_of(PaCo())
    views, targets = batch_of(method, [0, 0, 1, 2, 3, 0])
    batches = []
    method.encoder.register_forward_pre_hook(lambda _, given: batches.append(given[0].clone()))
    method.losses(views, targets, Generator())
    assert len(batches) == 1
    assert torch.equal(batches[0], views[0])


def test_paco_trains_the_classifier_and_kcl_does_not() -> None:
    for system, trains in ((PaCo, True), (KCL, False), (TSC, False)):
        method = method_of(system())
        method.begin(0)
        views, targets = batch_of(method, [0, 0, 1, 2, 3, 0])
        terms = method.losses(views, targets, Generator().manual_seed(2))
        assert system().classification_weight == 0
        torch.testing.assert_close(terms["total"], terms["contrast"])
        terms["total"].backward()
        gradient = method.classifier.weight.grad
        assert gradient is not None
        assert bool(gradient.abs().sum() > 0) == trains


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_step_without_a_forward_pass_changes_nothing(system: Any) -> None:
    steps = Steps(system(projection_dim=P))
    before = {name: b.clone() for name, b in steps.module.state_dict().items()}
    nn.init.zeros_(next(steps.encoder.parameters()))
    steps.module.after_step(steps.encoder)
    assert all(torch.equal(before[name], now) for name, now in steps.module.state_dict().items())


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_state_holds_all_that_a_contrast_remembers(system: Any, size: int) -> None:
    first, second = (Steps(system(queue_size=size, projection_dim=P)) for _ in range(2))
    for step in range(2):
        first.take(step)
    if isinstance(first.module, TargetedContrast):
        first.module.assignment.copy_(torch.tensor([2, 0, 3, 1]))
    second.encoder.load_state_dict(first.encoder.state_dict())
    second.module.load_state_dict(first.module.state_dict())
    for step in (2, 3):
        torch.testing.assert_close(second.forward(step), first.forward(step), rtol=0, atol=0)
        for steps in (first, second):
            with torch.no_grad():
                steps.module.after_step(steps.encoder)
                steps.module.after_epoch(1, 2)
    states = first.module.state_dict(), second.module.state_dict()
    assert all(torch.equal(values, states[1][name]) for name, values in states[0].items())


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [2, 2], [3, 0, 0, 0, 0]])
@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize("system", SYSTEMS)
def test_small_temperatures_and_batches_under_bfloat16_autocast(system: Any, size: int, labels: list[int]) -> None:
    method = method_of(system(queue_size=size, temperature=0.01))
    method.begin(0)
    for step in range(3):
        views, targets = batch_of(method, labels, seed=step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            terms = method.losses(views, targets, Generator().manual_seed(2))
        terms["total"].backward()
        assert all(term.isfinite() for term in terms.values())
        assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())
        method.after_step()
    assert method.contrast is not None
    assert method.contrast.queue.dtype == torch.float32


def test_the_same_random_numbers_make_the_same_encoder_with_and_without_keys() -> None:
    plain, with_keys = method_of(CrossEntropy()), method_of(PaCo(classification="cross-entropy"))
    for name, values in plain.encoder.state_dict().items():
        assert torch.equal(values, with_keys.encoder.state_dict()[name])
    assert torch.equal(plain.classifier.weight, with_keys.classifier.weight)
