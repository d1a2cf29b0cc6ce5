"""metrics.jsonl: a line of strict JSON for each round."""

import json
from pathlib import Path
from typing import Any

from fccl_mpi.core.files import replacing


class History:
    """The metrics of a run's rounds, on disk as soon as a round is over."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        """Add a round. Raises ValueError for a number JSON does not have (NaN, infinity)."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All rounds; a last line that a crash cut short is left out."""
        if not self.path.exists():
            return []
        text = self.path.read_text("utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def cut(self, last_round: int) -> None:
        """Forget the rounds after ``last_round``: they are done again."""
        kept = [line for line in self.read() if line["round"] <= last_round]
        with replacing(self.path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
