"""How nbval runs and compares notebooks: encrypted kernels, as the pipeline's, and strict where outputs are stored.

The theory notebooks are kept with their outputs, so every text, formula and table that they show must come out again.
The experiments are kept without: there nbval only sees that every cell runs. A cell whose output is chance has the tag
`nbval-ignore-output`.
"""

import functools

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbFile

nbval.kernel.KernelManager = functools.partial(KernelManager, transport_encryption="required")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Choose for each notebook what nbval compares."""
    if isinstance(collector, IPyNbFile):
        collector.compare_outputs = "theory" in collector.path.parts
        collector.skip_compare += ("stderr",)  # progress, and matplotlib's words when it first meets a machine's fonts
