"""The ledger of claims: what the four papers say, and what the notebooks found when they checked it.

``claims.yaml`` states every claim and its assumptions. A notebook records evidence while it runs and writes it at its
end; the ledger puts the two together. A claim without evidence is *not yet checked*, whatever anybody thinks of it.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from ltnb.files import replacing

FILE_NAME = "claims.yaml"

Kind = Literal["derived", "numerical", "optimised", "trained", "reproduced"]
Verdict = Literal["holds", "holds with a correction", "holds only under", "fails", "not reproduced"]


class ClaimsError(ValueError):
    """Something in the ledger is wrong; the message names the file or notebook, the claim and the value."""


class Claim(BaseModel):
    """A statement of a paper that can be checked."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    paper: Literal["bcl", "featrecon", "bce3s", "pal", "ltnb"]  # ltnb: a result of this project
    number: str  # "Theorem 3", "Eq. 7", "text"; as papers.md numbers it
    statement: str  # in our own words; formulas between dollar signs
    assumptions: str
    kinds: Annotated[list[Kind], Field(min_length=1)]  # the kinds of evidence that would settle it
    where: str  # the notebook that checks it, below notebooks/


@dataclass(frozen=True)
class Finding:
    """What one check found about one claim."""

    claim: str
    kind: Kind
    verdict: Verdict
    detail: str  # the correction, the condition or the counter-example; what was computed, in a sentence


@dataclass
class Evidence:
    """What a notebook found, in the order in which it found it."""

    notebook: str
    findings: list[Finding] = field(default_factory=list)

    def record(self, claim: str, verdict: Verdict, *, kind: Kind, detail: str = "") -> None:
        """Add a finding; call it after the check has passed, in the cell that makes it.

        Raises:
            ClaimsError: an unknown verdict or kind, or one that needs a detail (which correction, condition,
                counter-example) and has none.
        """
        for name, value, known in (("verdict", verdict, get_args(Verdict)), ("kind", kind, get_args(Kind))):
            if value not in known:
                raise ClaimsError(f"{self.notebook}: {claim}: {name} {value!r}; expected one of {', '.join(known)}")
        if verdict != "holds" and not detail:
            raise ClaimsError(f"{self.notebook}: {claim}: {verdict!r} without detail; expected what or why")
        self.findings.append(Finding(claim, kind, verdict, detail))

    def write(self, file: Path) -> None:
        """Write the findings as JSON, whole or not at all."""
        content = {"notebook": self.notebook, "findings": [asdict(finding) for finding in self.findings]}
        with replacing(file) as temporary:
            temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
