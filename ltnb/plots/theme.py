"""The look of every figure: one theme, one colour and marker a method, one colour a class."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from IPython.display import Image, display
from matplotlib.figure import Figure

RGB = tuple[float, float, float]
FILE_DPI, SCREEN_DPI = 150, 100


class Style(NamedTuple):
    """How a method is named and drawn."""

    label: str
    colour: str
    marker: str
    stroke: str = "-"  # where a loss and its FNPAL variant, in one colour, are to be told apart


# Okabe and Ito's colours, which stay apart for colour-blind readers; the baseline is grey, fnpal a wine red
# because their yellow is too pale on white.
STYLES = {
    "ce": Style("Cross-entropy", "#5C5C5C", "o"),
    "logit-adjustment": Style("Logit adjustment", "#56B4E9", "s"),
    "supcon": Style("SupCon + LA", "#E69F00", "^"),
    "bcl": Style("BCL", "#0072B2", "D"),
    "featrecon": Style("FeatRecon", "#009E73", "v"),
    "bce3s": Style("BCE3S", "#D55E00", "P"),
    "pal": Style("PAL", "#CC79A7", "X"),
    "fnpal": Style("FNPAL", "#882255", "p", "--"),
    "bcl-anchored": Style("BCL × PAL", "#44AA99", "h"),
    "bcl-class-weighted": Style("BCL, class-weighted", "#999933", "d"),
}

# Rows of the papers' presets that are drawn as lines or points: they stand apart within their paper.
ROW_STYLES = {
    "ce-sc": Style("CE joint", "#8C8C8C", "o"),
    "bce-sc": Style("BCE joint", "#E69F00", "^"),
    "bce-sc-bce-ss": Style("BCE joint + contrast", "#56B4E9", "s"),
    "bce-sc-bce-cc": Style("BCE joint + uniform", "#009E73", "v"),
    "ce-sc-ce-ss": Style("CE joint + CE contrast", "#0072B2", "D"),
    "ce-sc-bce-ss": Style("CE joint + BCE contrast", "#CC79A7", "X"),
    "ce-sc-bce-cc": Style("CE joint + BCE uniform", "#882255", "p"),
    "ce-sc-ce-cc": Style("CE joint + CE uniform", "#332288", "<"),
    "ce-sc-ss-cc": Style("CE, all three", "#44AA99", "h"),
    "mse-sc-ss-cc": Style("Squared error, all three", "#999933", "d"),
    "fnpn": Style("FNPN", "#0072B2", "D"),
    "ce-no-relu": Style("CE without last ReLU", "#E69F00", "^"),
    "pal-relu": Style("PAL with last ReLU", "#332288", "s"),
    "pal-logit-adjustment": Style("PAL + LA", "#44AA99", "h"),
    "logit-adjustment-no-relu": Style("LA without last ReLU", "#117733", "*"),
    "fnpal-ldam": Style("FNPAL + LDAM", "#009E73", "v"),
    "pal-retrained": Style("PAL, retrained", "#D55E00", "P"),
    "nsl": Style("NSL", "#663300", "<"),
    "focal": Style("Focal", "#7B68EE", ">"),
    "mae": Style("MAE", "#999933", "d"),
}

# The usual baselines by kind. A method of `STYLES` lends its colour to its kind; the papers' methods are of none.
FAMILY_STYLES = {
    "parity": Style("Parity", STYLES["ce"].colour, "o"),
    "loss and sampling": Style("Loss and sampling", STYLES["logit-adjustment"].colour, "s"),
    "classifier afterwards": Style("Classifier afterwards", "#332288", "<"),
    "mixed images": Style("Mixed images", "#999933", "d"),
    "contrast": Style("Contrast", STYLES["supcon"].colour, "^"),
    "fixed geometry": Style("Fixed geometry", "#882255", "h"),
}
BASELINES = {
    "parity": {"ce-cosine": "CE, cosine classifier"},
    "loss and sampling": {
        "focal-2": "Focal, γ = 2",
        "class-balanced": "Class-balanced loss",
        "class-balanced-focal": "Class-balanced focal",
        "resampling": "Class-balanced sampling",
        "ldam": "LDAM",
        "ldam-drw": "LDAM-DRW",
    },
    "classifier afterwards": {
        "post-hoc-adjustment": "Post-hoc LA",
        "tau-norm": "τ-norm",
        "crt": "cRT",
        "lws": "LWS",
    },
    "mixed images": {"mixup": "MixUp", "mixup-smoothed": "MixUp, smoothed cRT"},
    "contrast": {"dscl": "DSCL + LA", "kcl": "KCL", "tsc": "TSC", "paco": "PaCo", "proco": "ProCo"},
    "fixed geometry": {
        "etf-dr": "ETF + DR",
        "etf-dr-slow": "ETF + DR, shared rate",
        "max-separability": "Max. separation",
        "simplex-adjusted": "Fixed simplex + LA",
        "unit-adjusted": "Unit features + LA",
        "bcl-unit": "BCL on unit features",
        "rbl": "RBL",
    },
}

# Losses for wrong labels that stand beside themselves with FNPAL.
PAIRED_STYLES = {
    "gce": Style("GCE", "#E69F00", "^"),
    "sce": Style("SCE", "#56B4E9", "s"),
    "nce-mae": Style("NCE+MAE", "#009E73", "v"),
    "nce-rce": Style("NCE+RCE", "#D55E00", "P"),
    "nfl-rce": Style("NFL+RCE", "#332288", "h"),
}
SLOW = ("ce", "fnpal", "nce-mae", "nce-rce", "nfl-rce")  # rows that are there at a learning rate of 0.01 as well
SCALES = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)  # s of the rows fnpn-s0_2 to fnpal-s12_8


def _with_fnpal(styles: Mapping[str, Style]) -> dict[str, Style]:
    """Each loss, and its FNPAL variant in the same colour, dashed and with FNPAL's marker."""
    return {
        **styles,
        **{
            f"{loss}-fnpal": Style(f"{style.label}, FNPAL", style.colour, STYLES["fnpal"].marker, "--")
            for loss, style in styles.items()
        },
    }


def _of_scales(row: str, style: Style) -> dict[str, Style]:
    """A row's style at every scale: the darker, the larger s."""
    shades = sns.light_palette(style.colour, len(SCALES) + 3)[3:]  # what comes before is too pale on white
    return {
        f"{row}-s{scale}".replace(".", "_"): style._replace(
            label=f"{style.label}, s = {scale}", colour=mpl.colors.to_hex(shade)
        )
        for scale, shade in zip(SCALES, shades, strict=True)
    }


def _slow(styles: Mapping[str, Style]) -> dict[str, Style]:
    """Each row at a tenth of the protocol's learning rate in the same colour, dotted."""
    return {
        f"{row}-slow": styles[row]._replace(label=f"{styles[row].label}, rate 0.01", marker="*", stroke=":")
        for row in SLOW
    }


ROW_STYLES |= {
    row: FAMILY_STYLES[family]._replace(label=label)
    for family, rows in BASELINES.items()
    for row, label in rows.items()
}
ROW_STYLES |= _with_fnpal(PAIRED_STYLES) | _of_scales("fnpn", ROW_STYLES["fnpn"]) | _of_scales("fnpal", STYLES["fnpal"])
ROW_STYLES |= _slow(STYLES | ROW_STYLES)


def method_style(method: str) -> Style:
    """Label, colour and marker of a method key.

    A key that is neither in `STYLES` nor in `ROW_STYLES`, such as another ablation's row of ``params.yaml``, takes its
    hue and marker from a checksum of the key: the same in every figure, whatever other methods stand beside it.
    """
    known = STYLES | ROW_STYLES
    if method in known:
        return known[method]
    checksum = zlib.crc32(method.encode())
    hue, lightness = divmod(checksum % 1080, 3)
    colour = mpl.colors.to_hex(sns.husl_palette(1, h=hue / 360, s=0.8, l=(0.45, 0.55, 0.65)[lightness])[0])
    return Style(method, colour, "o^sDvPXp"[checksum // 1080 % 8])


def method_palette(methods: Sequence[str]) -> dict[str, str]:
    """Colour of each method key."""
    return {method: method_style(method).colour for method in methods}


def class_colours(class_counts: Sequence[int]) -> list[RGB]:
    """Colour of each class by its rank in size: dark blue for the largest class, orange for the smallest.

    Equal classes keep their order, so that colours differ.
    """
    ranks = np.argsort(np.argsort(-np.asarray(class_counts), kind="stable"), kind="stable")
    positions = 0.82 * ranks / max(len(class_counts) - 1, 1)  # the last part of the map is too pale on white
    return [tuple(rgba[:3]) for rgba in mpl.colormaps["plasma"](positions)]


def set_theme() -> None:
    """Use the project's theme for every figure made from here on (changes matplotlib's rcParams)."""
    sns.set_theme(
        context="notebook",
        style="ticks",
        palette=[style.colour for style in STYLES.values()],
        rc={
            "axes.grid": True,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": 13,
            "axes.labelsize": 13,
            "figure.dpi": SCREEN_DPI,
            "figure.titlesize": 15,
            "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
            "grid.alpha": 0.5,
            "legend.fontsize": 11,
            "legend.frameon": False,
            "lines.linewidth": 2.2,
            "lines.markersize": 7,
            "xtick.labelsize": 12,
            "ytick.labelsize": 12,
        },
    )


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure so that equal figures give equal files: no date, no name of the software in it.

    The ending of `path` says how (``.png`` or ``.svg``); its folder is made.
    """
    path = Path(path)
    metadata: dict[str, dict[str, Any]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
    if path.suffix not in metadata:
        raise ValueError(f"path must end in .png or .svg, got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "ltnb"}):  # else the ids inside an SVG are drawn at random
        figure.savefig(path, dpi=FILE_DPI, metadata=metadata[path.suffix])
    return path


def show(figure: Figure, path: Path | str) -> None:
    """Write a figure to `path`, a ``.png``, and show in a notebook what was written: it is drawn once, not twice."""
    width = round(figure.get_figwidth() * SCREEN_DPI)
    display(Image(filename=save(figure, path), width=width))  # type: ignore[no-untyped-call]
    plt.close(figure)
