"""The slots of a method as settings: what a row of ``params.yaml`` may say."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

View = Literal["none", "weak", "strong"]
Views = Annotated[tuple[View, ...], Field(min_length=1, strict=False)]
Classification = Literal["cross-entropy", "logit-adjusted"]
Contrast = Literal["none", "supervised", "balanced"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=1e-3, allow_inf_nan=False)]  # below, 1/τ leaves float32's useful range
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MethodSettings(BaseModel):
    """A method, slot by slot: L = λ · classification + μ · contrast.

    A *system* (``ce``, ``bcl``, …) is a subclass that only changes defaults, so any slot of any system can be
    set in a row of ``params.yaml``: an ablation, or a cross between two papers, is data and not code.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    system: str

    # The first view of an image is classified; the others are contrasted with each other.
    views: Views = ("strong",)

    classifier: Literal["linear", "cosine"] = "linear"
    classifier_scale: Positive = 30.0  # s of the cosine classifier, as BCL's code sets it

    classification: Classification = "cross-entropy"
    adjustment_strength: Positive = 1.0  # τ of logit adjustment; 1 is the Bayes-consistent value
    classification_weight: Weight = 1.0  # λ

    contrast: Contrast = "none"
    temperature: Temperature = 0.1  # τ of the contrast; 0.1 is BCL's for CIFAR, 0.07 for ImageNet-LT
    contrast_weight: Weight = 1.0  # μ
    projection_hidden: Annotated[int, Field(ge=1)] = 512
    projection_dim: Annotated[int, Field(ge=1)] = 128

    # Of the balanced contrast alone.
    averaging: Literal["none", "L1", "L2", "L3"] = "L1"
    complement: bool = True  # prototypes of every class stand in the batch
    anchor_weighting: Literal["sample", "class"] = "sample"

    # A slot's own settings mean nothing while the slot holds something else.
    _owners: ClassVar[dict[str, tuple[str, tuple[str, ...]]]] = {
        "classifier_scale": ("classifier", ("cosine",)),
        "adjustment_strength": ("classification", ("logit-adjusted",)),
        "temperature": ("contrast", ("supervised", "balanced")),
        "contrast_weight": ("contrast", ("supervised", "balanced")),
        "projection_hidden": ("contrast", ("supervised", "balanced")),
        "projection_dim": ("contrast", ("supervised", "balanced")),
        "averaging": ("contrast", ("balanced",)),
        "complement": ("contrast", ("balanced",)),
        "anchor_weighting": ("contrast", ("balanced",)),
    }

    def slots(self) -> dict[str, Any]:
        """Return the settings that have an effect, by name: those of a slot that holds something else are left out."""
        return {
            name: value
            for name, value in self.model_dump(mode="json").items()
            if name not in self._owners or getattr(self, self._owners[name][0]) in self._owners[name][1]
        }

    @model_validator(mode="after")
    def _every_setting_has_an_effect(self) -> Self:
        for name in sorted(self.model_fields_set & self._owners.keys()):
            slot, values = self._owners[name]
            if getattr(self, slot) not in values:
                raise ValueError(
                    f"{name}: {getattr(self, name)!r} has no effect while {slot} is {getattr(self, slot)!r}; "
                    f"expected {slot} to be {' or '.join(map(repr, values))}"
                )
        return self

    @model_validator(mode="after")
    def _views_fit_the_contrast(self) -> Self:
        if self.contrast == "none" and len(self.views) != 1:
            raise ValueError(f"views: {list(self.views)} has views that nothing contrasts; expected one view")
        if self.contrast != "none" and len(self.views) < 2:
            raise ValueError(
                f"views: {list(self.views)} leaves none to contrast; expected the classified view first, "
                "then one or more contrasted ones"
            )
        return self

    @model_validator(mode="after")
    def _prototypes_for_l3(self) -> Self:
        if self.contrast == "balanced" and self.averaging == "L3" and not self.complement:
            raise ValueError("averaging: 'L3' contrasts with prototypes; expected complement to be true")
        return self
