"""Methods that remember something from one step or epoch to the next, by what it is."""

from ltnb.methods import BCE3S, BCL, FNPAL, KCL, LDAM, LWS, RBL, TSC, FeatRecon, MethodSettings, PaCo, ProCo, Resampling

STATEFUL: dict[str, MethodSettings] = {
    "averaged prototypes, a new classifier afterwards, snapshots": BCL(
        prototypes="ema", second_stage="retrain", second_stage_epochs=2, snapshots=2
    ),
    "class memory, drawn negatives, mixed views, a rebalanced classifier afterwards": BCE3S(
        views=("strong", "mixup", "cutmix"),
        classified_views="all",
        negative_rate=0.5,
        second_stage="rebalance",
        second_stage_epochs=2,
        max_norm=0.5,
    ),
    "supports, drawn features, snapshots": FeatRecon(
        synthesis_start=0.4, support_refresh=2, head_above=5, nearest_heads=1, snapshots=4, projection_dim=8
    ),
    "a loss for wrong labels, anchors, a scale that knows of them": FNPAL(
        classification="nfl+rce",
        active_weight=1.0,
        passive_weight=0.1,
        focal_gamma=0.5,
        classifier_scale="noise-aware",
    ),
    "repeated features": FeatRecon(synthesis="up-sampling", snapshots=0),
    "momentum encoder, a queue that fills up, drawn positives, a new classifier afterwards, snapshots": KCL(
        queue_size=50, num_positives=2, second_stage_epochs=2, snapshots=2, projection_dim=8
    ),
    "targets that change hands, their classes' centres": TSC(
        queue_size=9, second_stage="none", prototype_momentum=0.5, projection_dim=8
    ),
    "a classifier that learns from the queue": PaCo(queue_size=20, snapshots=3, projection_dim=8),
    "two running means of each class": ProCo(projection_dim=8),
    "classes shown alike": Resampling(),
    "weights that count from the third epoch": LDAM(weighting_start=0.5),
    "weights that count, and a classifier rebalanced afterwards": LDAM(
        weighting_start=0.5, second_stage="rebalance", second_stage_epochs=2
    ),
    "scales of the vectors that the first stage trained, smoothed labels": LWS(
        views=("mixup",), second_stage_epochs=2, smoothing_head=0.4, smoothing_tail=0.1
    ),
    "a simplex that is turned, behind batch normalisation": RBL(feature_norm=True),
}
