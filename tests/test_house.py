"""The house: which wing may import which, and what stays unloaded until it is needed."""

import subprocess
import sys

import pytest

HEAVY = (
    "gymnax", "jumanji", "matplotlib", "tensorflow_probability", "tensorboardX", "jax", "envpool", "ale_py",
    "gymnasium",
)  # fmt: skip


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, purejax_sc; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


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
