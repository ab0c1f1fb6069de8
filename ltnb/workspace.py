"""Where data, runs and results lie, for the pipeline and for a notebook that somebody opens by hand."""

from dataclasses import dataclass
from pathlib import Path

from ltnb.params import find_project


@dataclass(frozen=True)
class Workspace:
    """The folders below ``folder``, in the project ``project``.

    The pipeline works in the project's folder. A notebook opened by hand works in ``scratch/`` there, so that nothing
    it does touches the pipeline's results.
    """

    project: Path
    folder: Path

    @classmethod
    def open(cls, name: str) -> "Workspace":
        """Return the workspace at ``name`` in the project around the current folder; the pipeline's is ``"."``."""
        project = find_project()
        return cls(project, (project / name).resolve())

    @property
    def is_pipeline(self) -> bool:
        """Whether this is the pipeline's workspace, where nothing missing is made up for."""
        return self.folder == self.project

    def data(self, dataset: str) -> Path:
        """The folder of a prepared data set."""
        return self.folder / "data" / dataset

    def run(self, dataset: str, method: str, seed: int) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / dataset / method / f"seed-{seed}"

    def checkpoint(self, dataset: str, method: str, seed: int) -> Path:
        """The file of a run's last checkpoint, outside the run's folder: DVC empties that before it trains."""
        return self.folder / "checkpoints" / dataset / method / f"seed-{seed}.pt"

    def evidence(self, notebook: str) -> Path:
        """The file of what a notebook found about the claims of the papers."""
        return self.folder / "evidence" / f"{notebook}.json"

    def results(self, dataset: str, name: str) -> Path:
        """The folder of tables and figures about a method (its name) or all of them (``"compare"``)."""
        return self.folder / "results" / dataset / name
