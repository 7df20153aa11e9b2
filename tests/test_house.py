"""The house: which wing may import which, and what stays unloaded until it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from purejax_sc.cli.commands import cli

PACKAGE = Path(__file__).parent.parent / "purejax_sc"

# What a wing may import beside `types`, `config`, `memory` and itself. Everything walks one way, from the paper
# outwards.
ABOVE_NOTHING = {"agent", "envs", "results"}
UP_TO_RUNS = {"runs", "training", "networks", "tabular", *ABOVE_NOTHING}
WINGS: dict[str, set[str]] = {
    "types": set(),
    "memory": set(),
    "config": set(),
    **{wing: set() for wing in ABOVE_NOTHING},
    "networks": {"agent"},
    "tabular": {"agent", "envs", "results"},
    "training": {"networks", "agent", "envs", "results.files"},
    "runs": {"training", "networks", "agent", "envs", "results"},
    "evaluation": UP_TO_RUNS,
    "games": UP_TO_RUNS | {"evaluation"},
    "studies": UP_TO_RUNS | {"evaluation", "games"},
    "cli": UP_TO_RUNS | {"evaluation", "games", "studies"},
    "__main__": {"cli", "runs.interrupts"},
}
HEAVY = (
    "gymnax", "jumanji", "matplotlib", "tensorflow_probability", "tensorboardX", "jax", "envpool", "gymnasium",
)  # fmt: skip
LEAVES = {"transforms", "returns", "losses", "consistency"}  # arrays in, arrays out


def imports_of(path: Path) -> set[str]:
    """Modules of this package that a file imports anywhere in it, dotted: `results.files`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("purejax_sc.") for name in names if name.startswith("purejax_sc.")} - {"__version__"}


def allowed(imported: str, wings: set[str]) -> bool:
    return any(f"{imported}.".startswith(f"{wing}.") for wing in wings)


def test_imports_run_one_way() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        wing, *rest = path.relative_to(PACKAGE).with_suffix("").parts
        if wing == "__init__":
            continue
        known = {"types"} if wing == "agent" and rest[0] in LEAVES else WINGS[wing] | {"types", "config", "memory"}
        strange = {name for name in imports_of(path) if not allowed(name, known | {wing})}
        assert not strange, f"{path.relative_to(PACKAGE)} imports {strange}"


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, purejax_sc; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_importing_the_learner_leaves_search_and_pictures_alone() -> None:
    unneeded = ("matplotlib", "mctx")  # distrax brings SciPy
    code = f"import sys, purejax_sc.agent.muesli; print([name for name in {unneeded} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_training_begins_without_pictures_and_leaves_logging_to_the_user() -> None:
    """gymnax draws by pyplot and seaborn, which take a second and are there when they are asked for."""
    unneeded = ("matplotlib.figure", "matplotlib.pyplot", "pandas", "scipy.stats", "seaborn")
    code = (
        "import logging, sys, purejax_sc.runs.fit, purejax_sc.evaluation.evaluate, purejax_sc.envs.gymnax;"
        f"print([name for name in {unneeded} if name in sys.modules], logging.root.handlers);"
        "from gymnax.environments.misc import pong;"
        "print(pong.sns.color_palette('gray', 1).as_hex(), pong.plt.__name__)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[] []", "['#808080'] matplotlib.pyplot"]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from purejax_sc.cli.commands import main; assert main(['--help']) == 0;"
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


def test_nothing_asks_which_platform_is_at_hand() -> None:
    """Programs follow the platform that they are lowered for, and runs that of their devices."""
    asking = [path for path in PACKAGE.rglob("*.py") if "default_backend" in path.read_text(encoding="utf-8")]
    assert asking == []


def test_a_configuration_has_at_most_a_hundred_keys() -> None:
    """Every kind of network counts with its own; the options of the tabular study do not."""
    from purejax_sc.config import reference

    assert sum(key.owner != reference.TABULAR for key in reference.read_keys()) <= 100


def test_nothing_grows_beyond_its_budget() -> None:
    """A budget is raised by a decision that is written down, not by a line more."""
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert not [path for path, lines in sizes.items() if lines > 460]
    assert sum(sizes.values()) <= 13_906  # on the way to 13,000
    assert len(cli.commands) <= 14
