"""The command line that run, bench and the other programs share."""

import argparse
import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn

from omegaconf import OmegaConf

from fccl_mpi.config.compose import PRESETS, choices
from fccl_mpi.config.schema import Config, ParticipantConfig, PublicConfig
from fccl_mpi.core.errors import UserError


class Parser(argparse.ArgumentParser):
    """Takes ``key=value`` overrides; its ``--help`` lists every key with its docstring."""

    def __init__(self, *, program: str, purpose: str, methods: Mapping[str, type]) -> None:
        super().__init__(prog=f"python -m {program}", description=purpose)
        self.methods = methods
        self.add_argument(
            "overrides", nargs="*", metavar="key=value", help="settings, in Hydra's override grammar"
        )
        self.add_argument(
            "--config-dir", type=Path, help="folder of your own scenario/, method/, public/ choices"
        )
        self.add_argument(
            "--print-config", action="store_true", help="print the composed configuration and exit"
        )

    def error(self, message: str) -> NoReturn:
        """Raise UserError, so that one of many ranks speaks."""
        raise UserError(f"{message}; --help lists all options and settings")

    def format_help(self) -> str:
        """argparse's own help, then all keys and choices."""
        return f"{super().format_help()}\n{describe(self.methods)}"


def describe(methods: Mapping[str, type]) -> str:
    """All settings with types, defaults and meaning, and the choices of each group."""
    lines = ["settings:"]
    lines += _entries(Config)
    lines += ["", "settings of each participant:", *_entries(ParticipantConfig, "participants.<domain>.")]
    lines += ["", "settings of the public set:", *_entries(PublicConfig, "public.")]
    for name, method in methods.items():
        lines += [
            "",
            f"method={name}: {(inspect.getdoc(method) or '').splitlines()[0]}",
            *_entries(method, "method."),
        ]
    for group in ("scenario", "public", "preset"):
        lines += ["", f"{group}=", *(f"  {name:<20} {_comment(group, name)}" for name in choices(group))]
    return "\n".join(lines) + "\n"


def _entries(schema: type, prefix: str = "") -> Iterator[str]:
    docs = {key: text for parent in reversed(schema.__mro__) for key, text in _field_docs(parent).items()}
    for item in fields(schema):
        if item.name not in docs:
            continue
        default = "" if item.default in (MISSING, "???", "") else f" = {OmegaConf.create([item.default])[0]}"
        kind = "" if item.type is Any else f" ({getattr(item.type, '__name__', item.type)})"
        yield f"  {prefix}{item.name}{kind}{default}"
        yield textwrap.fill(docs[item.name], 100, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _field_docs(schema: type) -> dict[str, str]:
    """The string under each field, which Python itself does not keep."""
    if schema.__module__ == "builtins":
        return {}
    body = ast.parse(textwrap.dedent(inspect.getsource(schema))).body[0].body  # type: ignore[attr-defined]
    docs = {}
    for statement, after in itertools.pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            docs[ast.unparse(statement.target)] = inspect.cleandoc(str(after.value.value)).replace("\n", " ")
    return docs


def _comment(group: str, name: str) -> str:
    """The comment on top of a preset file, after Hydra's package line."""
    for line in (PRESETS / group / f"{name}.yaml").read_text("utf-8").splitlines():
        if line.startswith("# ") and not line.startswith("# @package"):
            return line.removeprefix("# ")
    return ""
