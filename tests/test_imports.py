"""Imports point one way: read from the sources, nothing is run but one small check for torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sightline

ROOT = Path(sightline.__file__).parent
MODULES = {
    ".".join(("sightline", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


def imports(module: str, everywhere: bool = True) -> set[str]:
    """The modules that a module imports, in full; `everywhere` includes those inside functions."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree) if everywhere else at_top(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively: name the module in full"
            assert node.module is not None
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found


def at_top(tree: ast.AST) -> list[ast.stmt]:
    """Statements that run on import: not those in functions, and not those for the type checker alone."""
    statements: list[ast.stmt] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.stmt):
            statements.append(node)
        statements += at_top(node)
    return statements


def outside(modules: set[str]) -> set[str]:
    """The names of packages that are neither ours nor Python's."""
    return {name.split(".")[0] for name in modules} - {"sightline"} - set(sys.stdlib_module_names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


ALLOWED = {
    "sightline.attention": (
        "sightline.attention",
        "sightline.positions",
        "sightline.products",
        "sightline.randomness",
        "sightline.stack",
        "sightline.errors",
    ),
    "sightline.search": (
        "sightline.search",
        "sightline.hypothesis",
        "sightline.batch",
        "sightline.state",
        "sightline.errors",
    ),
}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_room_knows_only_its_neighbours(package: str) -> None:
    members = [module for module in MODULES if within(module, package)]
    assert members
    for module in members:
        known = imports(module)
        ours = {name for name in known if within(name, "sightline")}
        assert not [name for name in ours if not any(within(name, allowed) for allowed in ALLOWED[package])], module
        assert outside(known) <= {"torch", "numpy"}, module


@pytest.mark.parametrize(
    "module", ["positions", "layers", "encoders", "outputs", "state", "batch", "decoders.base", "decoders.transformer"]
)
def test_parts_know_neither_configuration_nor_recipes(module: str) -> None:
    """A part receives built parts, never a config."""
    above = ("sightline.config", "sightline.models", "sightline.training", "sightline.search", "sightline.text")
    known = imports(f"sightline.{module}")
    assert not [name for name in known if any(within(name, one) for one in above)]


def test_there_is_no_circle() -> None:
    """Every module can be read after the ones it imports."""
    graph = {module: {name for name in imports(module, everywhere=False) if name in MODULES} for module in MODULES}
    left = dict(graph)
    while ready := [module for module, known in left.items() if not (known & left.keys()) - {module}]:
        for module in ready:
            del left[module]
    assert not left, f"these import each other: {sorted(left)}"


def test_masks_are_applied_in_one_place() -> None:
    """Filling scores is the core's work; a module that did it on its own could make an empty row NaN."""
    filling = {
        module
        for module, path in MODULES.items()
        if within(module, "sightline.attention") or "coders" in module
        if "masked_fill" in path.read_text(encoding="utf-8")
    }
    assert filling == {"sightline.attention.core"}


def test_the_configuration_and_a_runs_text_need_no_torch() -> None:
    """`sightline --help` must answer at once."""
    code = (
        "import sys, sightline.config, sightline.errors, sightline.training.material; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT.parent).returncode == 0
