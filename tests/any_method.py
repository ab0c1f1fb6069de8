"""Methods with slots drawn at random, and a few images to try them on."""

import random
from typing import Any, get_args

import torch
from torch import Generator

from ltnb.data.views import draw
from ltnb.methods import System
from ltnb.methods.assembly import Method
from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import REQUIRED, Classification, ClassWeighting, Contrast, Correction, SecondStage, View

COUNTS = [14, 6, 3, 1]  # all of them in one batch
SYSTEMS: tuple[type[MethodSettings], ...] = get_args(System)

# Every slot and setting, with values at both ends of what is allowed and one between.
CHOICES: dict[str, list[Any]] = {
    "views": [[view, *others] for view in get_args(View) for others in ([], ["sim"], ["cutmix"], ["strong", "rand"])],
    "classified_views": ["first", "all"],
    "last_relu": [True, False],
    "feature_dim": [None, 2, 3],
    "feature_norm": [True, False],
    "sampler": ["instance", "class-balanced"],
    "classifier": ["linear", "cosine", "normalised", "anchored", "anchored-cosine", "rotated"],
    "classifier_scale": [0.1, 16.0, "noise-aware"],
    "anchors": ["simplex", "optimised"],
    "classification": list(get_args(Classification)),
    "classification_weight": [0.0, 2.0],
    "adjustment_strength": [0.5, 2.0],
    "margins": ["equal", "ldam"],
    "margin": [0.0, 0.3],
    "negative_rate": [0.01, 0.5, 1.0],
    "negatives": ["independent", "batch"],
    "focal_gamma": [0.0, 0.5, 5.0],
    "gce_q": [0.01, 0.7, 1.0],
    "active_weight": [0.0, 1.0, 10.0],
    "passive_weight": [0.0, 0.1, 10.0],
    "class_weighting": list(get_args(ClassWeighting)),
    "weighting_start": [0.01, 0.5, 0.99],
    "contrast": list(get_args(Contrast)),
    "contrast_weight": [0.0, 0.6],
    "temperature": [0.001, 0.1, 10.0],
    "head_temperature": [None, 0.1, 20.0],
    "projection_hidden": [1, 8],
    "projection_dim": [2, 3, 8],
    "projection_norm": [True, False],
    "averaging": ["none", "L1", "L2", "L3"],
    "anchor_weighting": ["sample", "class"],
    "complement": [True, False],
    "prototypes": ["classifier", "ema", "learnable", "anchored"],
    "prototype_momentum": [0.0, 0.9],
    "key_momentum": [0.0, 0.9],
    "queue_size": [1, 7, 100],
    "num_positives": [1, 2, 100],
    "target_weight": [0.0, 0.2],
    "sample_weight": [0.0, 0.05],
    "own_weight": [0.01, 1.0],
    "spread": ["none", "binary", "cross-entropy", "mse"],
    "spread_weight": [0.0, 1.0],
    "synthesis": ["none", "up-sampling", "supports"],
    "synthetic_features": ["equalise", 1, 5],
    "synthetic_anchors": [True, False],
    "synthesis_start": [0.0, 0.5, 0.9],
    "support_refresh": [1, 2],
    "support_quantile": [0.01, 1.0],
    "support_law": ["truncated-normal", "uniform"],
    "support_cap": [True, False],
    "head_above": [0, 5, 100],
    "nearest_heads": [1, 2],
    "head_mix": [0.0, 0.5, 1.0],
    "head_weights": ["corrected", "printed"],
    "second_stage": list(get_args(SecondStage)),
    "second_stage_epochs": [1, 3],
    "second_stage_learning_rate": [0.01],
    "class_balance": [0.0, 0.9999],
    "smoothing_head": [0.0, 0.4],
    "smoothing_tail": [0.0, 0.1],
    "max_norm": [None, 0.1],
    "correction": list(get_args(Correction)),
    "correction_strength": [0.5, 2.0],
    "learning_rate": [None, 0.01],
    "weight_decay": [None, 0.0],
    "snapshots": [0, 2],
}


def candidate(source: random.Random) -> tuple[type[MethodSettings], dict[str, Any]]:
    """A system and some of its settings, which need not go together."""
    system = source.choice(SYSTEMS)
    slots = {"views", "classifier", "classification", "contrast", "spread", "synthesis", "second_stage"}
    names = [name for name in CHOICES if source.random() < (0.5 if name in slots else 0.1)]
    changes = {name: source.choice(CHOICES[name]) for name in names}
    if source.random() < 0.9:
        changes = parameters_of(changes.get("classification", ""), source) | changes
    return system, changes


def parameters_of(classification: str, source: random.Random) -> dict[str, Any]:
    """What a classification cannot do without, and no other takes."""
    wanted = {name for name in REQUIRED if classification in MethodSettings._owners[name][1]}
    return {name: source.choice(CHOICES[name]) for name in REQUIRED if name in wanted}


def valid_method(source: random.Random) -> MethodSettings:
    """Settings that pass every check, those of the classes included."""
    while True:
        system, changes = candidate(source)
        try:
            settings = system(**changes)
            settings.check_classes(COUNTS, 64)
        except ValueError:  # pydantic's among them
            continue
        return settings


def train_a_little(settings: MethodSettings, epochs: int = 3) -> Method:
    """Train epochs of two steps, then the second stage's, on noise; every term has to be finite."""
    torch.manual_seed(0)
    method = Method(settings, "resnet8", 1, COUNTS, noise_rate=0.2)
    generator = Generator().manual_seed(1)
    labels = torch.repeat_interleave(torch.arange(len(COUNTS)), torch.tensor(COUNTS))
    images = torch.randint(0, 256, (len(labels), 1, 8, 8), generator=generator, dtype=torch.uint8)
    for stage in range(1 if settings.second_stage == "none" else 2):
        parameters = method.begin(stage)
        optimizer = torch.optim.SGD(parameters, lr=0.01) if parameters else None
        for epoch in range(epochs):
            method.train()
            for batch in torch.randperm(len(labels), generator=generator).chunk(2):
                drawn = [
                    draw(images[batch], labels[batch], view, generator, num_classes=len(COUNTS))
                    for view in method.views
                ]
                terms = method.losses([view for view, _ in drawn], [targets for _, targets in drawn], generator)
                assert all(term.isfinite() for term in terms.values()), terms
                if optimizer is not None:
                    optimizer.zero_grad()
                    torch.autograd.backward(terms["total"])
                    optimizer.step()
                method.after_step()
            method.after_epoch(epoch + 1, epochs)
    return method
