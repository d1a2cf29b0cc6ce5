"""Imports point down only: the floors of CONTRIBUTING.md, read from the code itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# the ground first
FLOORS = ("core", "config", "maths", "data", "models", "store", "methods", "federation", "sweep")
GROUND = ("fccl_mpi",)  # fccl_mpi/__init__.py: the version


def floor_of(module: str) -> int:
    """0 for the ground, the highest for the programs."""
    if module in GROUND:
        return -1
    part = module.split(".")[1]
    return FLOORS.index(part) if part in FLOORS else len(FLOORS)


def imports_of(path: Path) -> set[str]:
    """Project modules that a file imports when it runs; imports for type checking alone do not count."""
    tree = ast.parse(path.read_text("utf-8"))
    found = set()
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fccl_mpi"):
            inner = {f"{node.module}.{name.name}" for name in node.names}
            modules = {name for name in inner if is_module(name)}
            found |= modules if modules == inner else {node.module, *modules}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.startswith("fccl_mpi")}
    return found


def is_module(name: str) -> bool:
    """Whether a dotted name is a file or a package of the project."""
    place = ROOT.joinpath(*name.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


MODULES = sorted((ROOT / "fccl_mpi").rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_imports_point_down(path: Path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    upward = {name for name in imports_of(path) if floor_of(name) > floor_of(module)}
    assert not upward, f"{module} imports upward: {upward}"


def test_data_prep_knows_only_the_schema_and_the_ground():
    for path in (ROOT / "data_prep").rglob("*.py"):
        for name in imports_of(path):
            assert name in ("fccl_mpi", "fccl_mpi.data.schema") or name.startswith("fccl_mpi.core"), (
                path,
                name,
            )


def test_contributing_shows_these_floors():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    places = [text.index(f"\n  {floor}/") for floor in reversed(FLOORS)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "module",
    [
        *("fccl_mpi", "fccl_mpi.run", "fccl_mpi.methods.registry", "data_prep.__main__"),
        *("fccl_mpi.sweep.sweep", "fccl_mpi.report.report", "fccl_mpi.reproduce", "fccl_mpi.bench.command"),
    ],
)
def test_programs_start_without_mpi_and_without_torch(module: str):
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'mpi4py.MPI'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
