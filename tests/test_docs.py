"""The README's examples: marked Python blocks run, and every training command names a configuration that loads."""

import re
import shlex
from pathlib import Path

import pytest

from purejax_sc import config
from purejax_sc.cli.commands import train

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.is_file() else ""
# `<!-- test -->` or `<!-- test: slow -->` on the line before a block
PYTHON = re.findall(r"<!-- test(: slow)? -->\s*```python\n(.*?)```", TEXT, flags=re.DOTALL)
BASH = re.findall(r"```bash\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = re.findall(r"^purejax-sc train (.+)$", "\n".join(BASH).replace("\\\n", " "), flags=re.MULTILINE)
BLOCKS = [pytest.param(code, marks=pytest.mark.slow if slow else ()) for slow, code in PYTHON]


@pytest.mark.parametrize("code", BLOCKS)
def test_python_examples_run(code: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(README), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("command", COMMANDS)
def test_training_commands_load(command: str) -> None:
    words = shlex.split(command.partition(" #")[0])
    context = train.make_context("train", words)
    name = context.params["config"]
    if name != "CONFIG":  # which stands for any
        assert config.load(name, context.params["overrides"]).env
