"""Train a configuration from Python and evaluate the trained agent with its greedy policy.

python examples/train.py [CONFIG] [KEY=VALUE ...]

For example `python examples/train.py catch sc.update=direct train.env_steps=64_000`. The run directory is
runs/train_example. `purejax-sc plot` and `purejax-sc evaluate` read it as well.
"""

import sys
from pathlib import Path

from purejax_sc import EvaluationOptions, evaluate, load, train


def main(words: list[str]) -> None:
    """Train two seeds and print their greedy returns."""
    name, overrides = (words[0], words[1:]) if words else ("catch", ["train.env_steps=16_000"])
    directory = Path("runs") / "train_example"
    config = load(name, overrides)
    summary = train(config, directory, num_seeds=2, force=True)  # `force` replaces an earlier run
    print(f"trained at {summary['env_steps_per_second']:,.0f} environment steps per second")

    report = evaluate(directory, EvaluationOptions(episodes=64))
    for policy, result in report["policies"].items():  # greedy, and sampled from the policy
        print(f"{policy}: mean return {result['return']['mean']:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
