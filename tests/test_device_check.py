"""The check of a device: it covers everything, needs little, agrees with the package, and can fail."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Generator, Tensor

from ltnb import losses
from ltnb.data.augmentation import VIEWS
from ltnb.data.views import MIXED_VIEWS
from ltnb.methods import BCL
from ltnb.methods.assembly import Method

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "device_check.py"
CPU = torch.device("cpu")

# What the package needs and a machine with torch, torchvision and NumPy lacks.
WITHOUT = """
import runpy, sys
missing = {"joblib", "matplotlib", "pandas", "pydantic", "ruamel", "safetensors", "scipy", "seaborn", "sklearn", "tqdm"}
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in missing else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
file = sys.argv[1]
sys.argv = sys.argv[1:]
runpy.run_path(file, run_name="__main__")
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("device_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_runs_with_torch_and_numpy_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(SCRIPT), "--device", "cpu", "--quick"],
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[-1] == "OK"
    checked = [line[:30].strip() for line in lines if line.endswith("  OK")]
    ways = ["float32", "bfloat16", "bfloat16 compiled", "bfloat16 not deterministic"]
    assert checked == [*losses.__all__, *VIEWS, *MIXED_VIEWS, "step in float32", "step in bfloat16", *ways]


def test_cases_cover_every_loss(script: ModuleType) -> None:
    assert {case.loss for case in script.CASES} == set(losses.__all__)


@pytest.mark.parametrize("wrong", [1.0001, float("nan")])
def test_loss_that_is_off_fails(script: ModuleType, monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    right = losses.mae
    assert script.check_loss("mae", CPU)[1]

    def off_in_float32(logits: Tensor, y: Tensor, *, reduction: str) -> Tensor:
        return right(logits, y, reduction=reduction) * (wrong if logits.dtype == torch.float32 else 1)

    monkeypatch.setattr(losses, "mae", off_in_float32)
    assert not script.check_loss("mae", CPU)[1]


def test_gradient_that_is_off_fails(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right = losses.mae

    def steeper_in_float32(logits: Tensor, y: Tensor, *, reduction: str) -> Tensor:
        value = right(logits, y, reduction=reduction)
        return value if logits.dtype == torch.float64 else 1.001 * value - 0.001 * value.detach()

    monkeypatch.setattr(losses, "mae", steeper_in_float32)
    assert not script.check_loss("mae", CPU)[1]


def test_view_that_is_off_fails(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def drifting(images: Tensor, _generator: Generator, _size: tuple[int, int]) -> Tensor:
        nonlocal calls
        calls += 1
        images = images.clone()
        images[0, :, 0] += 0.001 * calls  # one row in one of 16 images of 32 rows: 0.2 %
        return images

    assert script.check_view("none", CPU, script.QUICK)[1]
    monkeypatch.setitem(VIEWS, "none", drifting)
    assert not script.check_view("none", CPU, script.QUICK)[1]


def test_draws_are_made_on_the_cpu_and_moved(script: ModuleType) -> None:
    with script.DrawnOnCpu():
        there = torch.rand(3, generator=Generator().manual_seed(0), device="meta")
        here = torch.rand(3, generator=Generator().manual_seed(0), device=CPU)
    assert there.device.type == "meta"
    assert torch.equal(here, torch.rand(3, generator=Generator().manual_seed(0)))


def test_error_is_a_failure_and_the_rest_goes_on(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    def unsupported() -> tuple[str, bool]:
        raise RuntimeError("no deterministic\nimplementation")

    report = script.Report()
    report.check("first", unsupported)
    report.check("second", lambda: ("1.0", True))
    assert report.failed == ["first"]
    first, second = capsys.readouterr().out.splitlines()
    assert " ".join(first.split()) == "first RuntimeError: no deterministic implementation FAILED"
    assert second.split() == ["second", "1.0", "OK"]


def test_failure_is_the_exit_status(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "check", lambda *_: ["mae"])
    monkeypatch.setattr(sys, "argv", ["device_check.py", "--device", "cpu"])
    with pytest.raises(SystemExit) as exit_:
        script.main()
    assert exit_.value.code == 1


def test_no_device_is_said(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["device_check.py"])
    with pytest.raises(SystemExit, match="no CUDA device"):
        script.main()


def test_bcl_is_the_method_of_that_name(script: ModuleType) -> None:
    counts = [20, 10, 5]
    ours = script.Bcl("resnet8", counts)
    method = Method(BCL(temperature=0.1), "resnet8", 3, counts)
    contrast = method.contrast
    assert contrast is not None
    pairs = {
        "encoder": method.encoder,
        "classifier": method.classifier,
        "projector": contrast.projector.mlp,
        "prototypes": contrast.class_prototypes.projector.mlp,
    }
    for name, part in pairs.items():
        getattr(ours, name).load_state_dict(part.state_dict())
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in method.parameters())
    generator = Generator().manual_seed(0)
    views = [torch.rand(8, 3, 16, 16, generator=generator) for _ in range(3)]
    labels = torch.randint(3, (8,), generator=generator)
    expected = method.losses(views, [labels] * 3, generator)["total"]
    torch.testing.assert_close(ours(views, labels), expected)
