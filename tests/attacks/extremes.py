"""Numbers at the ends of what floats and integers hold: a run ends, or is refused in one line, and never with NaN."""

import csv
import math
from pathlib import Path

from attacks import runs
from attacks.base import Attack, Case, Outcome, fault

NUMBERS = (
    "0",
    "-0.0",
    "1",
    "1e-45",
    "1e-308",
    "5e-324",
    "1e-7",
    "0.9999999",
    "1e7",
    "1e30",
    "3.4e38",
    "3.5e38",
    "1e308",
)
HYPER = (
    "learning_rate", "discount", "lambda_", "target_rate", "pg_weight", "cmpo_weight", "model_policy_weight",
    "value_weight", "model_value_weight", "reward_weight", "cmpo_clip", "prior_behaviour", "prior_uniform",
    "explore",
)  # fmt: skip
SIZES = (
    "seed=2147483647", "seed=0", "seed=2147483648", "train.env_steps=64", "train.env_steps=1",
    "train.log_points=1000000",
    "train.sequence_length=1", "train.num_envs=1", "train.batch_sequences=1", "replay.capacity=1", "replay.capacity=8",
    "train.replay_share=1", "train.replay_share=0", "muesli.bins=3", "muesli.bins=4", "muesli.bins_max=1e-30",
    "muesli.bins_max=1e30", "checkpoint.keep=1",
    "checkpoint.updates=1000000000", "network.width=1", "network.head_width=0", "network.depth=0",
)  # fmt: skip


def number(case: Case) -> Outcome:
    """A run whose words hold one or two extreme values."""
    words = [f"hyper.{name}={case.rng.choice(NUMBERS)}" for name in case.rng.sample(HYPER, case.rng.randint(1, 2))]
    if case.rng.random() < 0.3:
        words = [case.rng.choice(SIZES)]
    out = case.scratch / "run"
    result = case.site.call(runs.words("device", out, *words), case.scratch)
    failure = fault(result, one_line=False)
    if failure is None and result.status == 0:
        failure = _not_finite(out)
    return Outcome((f"{' '.join(words)}: {failure}",) if failure else ())


def _not_finite(out: Path) -> str | None:
    """A number of a run that ended well and is none. Cells of returns are empty where no episode ended."""
    with (out / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    bad = [name for row in rows for name, cell in row.items() if cell and not math.isfinite(float(cell))]
    return f"{bad[0]} is not finite in a run that ended well" if bad else None


ATTACKS = (Attack("extreme values", number, 60, 0.07, short=1),)
