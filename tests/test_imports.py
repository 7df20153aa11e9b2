"""Which module may import which: the import order is the diagram of the library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "purejax_sc"

# A module imports only from its own package folder and from the rows above its own.
ROWS = [
    {"types", "config", "statistics", "gtp", "interrupts"},
    {"transforms", "returns", "conv", "plots", "devices", "scores"},
    {"losses", "consistency", "compare"},
    {"networks", "replay", "envs"},
    {"muesli", "tabular", "render", "search"},
    {"arena"},
    {"session"},
    {"train"},
    {"program", "checkpoint", "opponents", "actors", "host_replay"},
    {"recorder", "sebulba", "jitted", "host_arena"},
    {"run", "evaluate", "sweep", "pools", "matches"},
    {"atari57"},
    {"__main__"},
]
# What these know of the package; leaves never see a config, an environment or a network.
ONLY = {
    "types": set(),
    "config": set(),
    "statistics": set(),
    "gtp": set(),
    "interrupts": set(),
    "transforms": {"types"},
    "returns": {"types", "transforms"},
    "losses": {"types", "transforms", "returns"},
    "consistency": {"types", "transforms", "returns"},
    "replay": {"types"},
    "host_replay": {"types"},
    "networks": {"types", "config", "transforms", "conv"},
    "scores": {"statistics"},
    "envs": {"types", "config", "scores"},
    "plots": {"statistics"},
    "devices": {"types", "config"},
    "compare": {"config", "statistics", "plots"},
    "tabular": {"types", "config", "statistics", "transforms", "plots", "consistency", "envs"},
}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
HEAVY = (
    "gymnax",
    "jumanji",
    "matplotlib",
    "tensorflow_probability",
    "tensorboardX",
    "jax",
    "envpool",
    "ale_py",
    "gymnasium",
)


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Modules of this package that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("purejax_sc.")} - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    module = module_of(path)
    row = next((i for i, names in enumerate(ROWS) if module in names), None)
    assert row is not None, f"give {module} a place in ROWS"
    imported = imports_of(path) - {module}
    assert imported <= set().union(*ROWS[:row])
    assert imported <= ONLY.get(module, imported)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, purejax_sc; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from purejax_sc.__main__ import main; assert main(['--help']) == 0;"
        f"assert not [name for name in {HEAVY} if name in sys.modules]"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "train" in result.stdout
    assert "plot" in result.stdout


def test_unknown_names_of_the_package_are_refused() -> None:
    import purejax_sc

    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = purejax_sc.no_such_name
    assert {"Config", "Hyper", "load", "make_train", "make_trainer"} <= set(purejax_sc.__all__)
