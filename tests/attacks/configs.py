"""Configurations and KEY=VALUE words, from nearly right to hostile. Nothing is trained: --print-config.

What is accepted must be accepted again, and print the same. What is refused ends in one line. Nothing is executed.
"""

import random
import string
from pathlib import Path

import yaml

from attacks.base import Attack, Case, Outcome, fault

SHIPPED = ("smoke", "catch", "cartpole", "garnet", "tic_tac_toe", "sokoban_small", "minatar_breakout", "atari_small")
VALUES = (
    "0", "1", "-1", "2", "3.5", "1e400", "-1e400", ".nan", ".inf", "-.inf", "null", "~", "true", "no", "''", "' '",
    "[]", "{}", "[1, 2]", "{a: 1}", "[[[[]]]]", "1_000", "0x10", "0o17", "1e-400", "99999999999999999999", "-0.0",
    "2147483648", "9223372036854775808", "text", "'[not a list]'", "2001-01-01", "!!binary aGk=", "!!set {a}",
    "*alias", "&anchor 1", "[", "}", "'", '"', "a: b: c", "- x", "# nothing", "\t", "💥", "\x85", "\ufeff1", "%",
    "@",    "os:nothing", "no_such_module:thing", "math:pi", ":", "a:", ":b", "..:x", "a.b.c:d", "\\x00", "1" * 5000,
    "x" * 5000,
)  # fmt: skip
PAYLOADS = (
    "!!python/object/apply:os.system ['touch {canary}']",
    "!!python/object/new:subprocess.Popen [['touch', '{canary}']]",
    "!!python/name:os.system",
    "!!python/module:os",
    "$(touch {canary})",
    "`touch {canary}`",
    "__import__('os').system('touch {canary}')",
)
TEXTS = (
    "", "\n", "---\n---\n", "[]", "1", "null", "env", "env:", "env: [", "- env: garnet", "{", "\x00",
    "\ufeffenv: garnet\n",
    "env: garnet\nenv: garnet\n", "<<: *x\n", "? [a, b]\n: c\n", "1: 2\n", "env: {env: garnet}\n",
    "[" * 3000, "{a: " * 3000, "a:\n" + " " * 100_000 + "b", "&a " * 1000 + "x",
    "null: 1\n", "true: {a: b}\n", "env: garnet\nhyper: {1: 2}\n", "env: garnet\n2001-01-01: x\n",
    "env: garnet\n[a]: x\n",
)  # fmt: skip


def text(case: Case) -> Outcome:
    """A file: a shipped one with some places changed, or none at all."""
    rng, canary = case.rng, case.scratch / "canary"
    path = case.scratch / "config.yaml"
    path.write_bytes(_mutated(rng, _shipped(case, rng.choice(SHIPPED)), canary))
    return _printed(case, [str(path)], canary, str(path.read_bytes()[:80]))


def override(case: Case) -> Outcome:
    """One to three KEY=VALUE words for a shipped configuration."""
    rng, canary = case.rng, case.scratch / "canary"
    name = rng.choice(SHIPPED)
    keys = _keys(yaml.safe_load(_shipped(case, name)))
    words = [_word(rng, keys, canary) for _ in range(rng.randint(1, 3))]
    return _printed(case, [name, *words], canary, f"{name} {[word[:40] for word in words]}")


def _printed(case: Case, words: list[str], canary: Path, what: str) -> Outcome:
    command = ["train", "--print-config", "--", *words]
    first = case.site.call(command, case.scratch)
    failure = fault(first)
    if failure is None and first.status == 0:
        failure = _again(case, first.out)
    if canary.exists():
        failure = "something was executed"
    return Outcome((f"{what}: {failure}",) if failure else ())


def _again(case: Case, printed: str) -> str | None:
    """What was printed is a configuration, and the same one."""
    (case.scratch / "again.yaml").write_text(printed, encoding="utf-8")
    again = case.site.call(["train", "again.yaml", "--print-config"], case.scratch)
    if again.status != 0:
        return f"what was printed is refused: {again.err[:160]}"
    return None if again.out == printed else "what was printed reads as another configuration"


def _shipped(case: Case, name: str) -> str:
    """The complete configuration of this name, as the command prints it."""
    result = case.site.once(f"config {name}", lambda: case.site.call(["train", name, "--print-config"], case.site.root))
    if result.status != 0:
        raise RuntimeError(f"train {name} --print-config: exit status {result.status}: {result.err[-300:]}")
    return str(result.out)


def _keys(tree: dict[str, object]) -> list[str]:
    nested = {key: value for key, value in tree.items() if isinstance(value, dict)}
    return [*tree, *(f"{section}.{key}" for section, part in nested.items() for key in part)]


def _word(rng: random.Random, keys: list[str], canary: Path) -> str:
    key = rng.choice(keys)
    value = rng.choice((*VALUES, *(payload.format(canary=canary) for payload in PAYLOADS)))
    kind = rng.random()
    if kind < 0.1:
        key = _misspelt(rng, key)
    elif kind < 0.15:
        return rng.choice((key, "=", "==", f"={value}", f"{key}=", f".{key}={value}", f"{key}.={value}", f"..={value}"))
    elif kind < 0.2:
        return f"{key}.deeper.still={value}"
    return f"{key}={value}"


def _misspelt(rng: random.Random, key: str) -> str:
    i = rng.randrange(len(key))
    return key[:i] + rng.choice((*string.printable, "", "é")) + key[i + 1 :]


def _mutated(rng: random.Random, whole: str, canary: Path) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(TEXTS).encode()
    if kind < 0.2:
        return rng.choice(PAYLOADS).format(canary=canary).encode() + b"\n" + whole.encode()
    lines = whole.splitlines()
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(lines))
        key = lines[i].partition(":")[0]
        value = rng.choice((*VALUES, *(payload.format(canary=canary) for payload in PAYLOADS)))
        lines[i] = rng.choice((f"{key}: {value}", f" {lines[i]}", key, "", f"{lines[i]}\n{lines[i]}", lines[i][::-1]))
    data = bytearray("\n".join(lines).encode())
    if kind < 0.4:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


ATTACKS = (
    Attack("configurations", text, 500, 0.05, short=60),
    Attack("override strings", override, 500, 0.05, short=60),
)
