"""metrics.jsonl: a line of strict JSON for each round."""

import json
import os
from pathlib import Path
from typing import Any, NoReturn

from fccl_mpi.core.errors import UserError
from fccl_mpi.core.files import explaining, replacing

ADVICE = "make room or mend its permissions, and the same command goes on from the last checkpoint"


class History:
    """The metrics of a run's rounds, on disk as soon as a round is over."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: dict[str, Any]) -> None:
        """Add a round.

        Raises ValueError for a number JSON does not have (NaN, infinity), UserError where the disk fails.
        """
        text = json.dumps(line, allow_nan=False) + "\n"
        with explaining(self.path, ADVICE), self.path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Rounds 0, 1, ...; a last line that a crash cut short is left out.

        Raises UserError naming the line where it is anything else.
        """
        return [line for _, line in self._lines()]

    def last(self) -> dict[str, Any] | None:
        """The last round, the others unread; None where there is none. Raises UserError as `read` does."""
        if not self.path.exists():
            return None
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return self._parse(lines[-1], len(lines) - 1) if lines else None

    def cut(self, last_round: int) -> None:
        """Forget the rounds after ``last_round``: they are done again.

        Raises UserError where one before is lost.
        """
        lines = self._lines()
        if len(lines) <= last_round:
            raise UserError(
                f"{self.path} lacks round {len(lines)}, which a checkpoint has: restore it, or remove the "
                "run's folder to begin anew"
            )
        kept = b"".join(raw + b"\n" for raw, _ in lines[: last_round + 1])
        if self.path.exists() and kept != self.path.read_bytes():
            with explaining(self.path, ADVICE), replacing(self.path) as temporary:
                temporary.write_bytes(kept)

    def _lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Every whole line as it stands and what it says."""
        lines: list[tuple[bytes, dict[str, Any]]] = []
        if not self.path.exists():
            return lines
        for raw in self.path.read_bytes().split(b"\n")[:-1]:
            lines.append((raw, self._parse(raw, len(lines))))
        return lines

    def _parse(self, raw: bytes, round: int) -> dict[str, Any]:
        try:
            line = json.loads(raw, parse_constant=_refuse)
            if not isinstance(line, dict) or line.get("round") != round:
                raise ValueError(f"it is not of round {round}")
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{self.path}, line {round + 1}, is damaged ({error}): restore it, or remove the "
                "run's folder to begin anew"
            ) from error
        return line


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
