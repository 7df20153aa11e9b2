"""Progress on the terminal."""

import sys

import numpy as np
from tqdm import tqdm

from purejax_sc.training.compiled import Point


class Bar:
    """An `on_log` callback: shows a bar with environment steps per second and the latest return.

    On anything but a terminal these are plain lines, at the first log point and at every tenth of the run.
    """

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._tenths = -1

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def __call__(self, point: Point) -> None:
        returns = point.metrics["episode_return"]
        known = returns[np.isfinite(returns)]
        latest = f"return {known.mean():.4g}" if len(known) else "no episode ended"
        env_steps = point.env_steps * len(point.seeds)
        text = f"{env_steps / point.wall_time:,.0f} env steps/s  {latest}"
        if sys.stderr.isatty():
            self._draw(round(env_steps / point.fraction), env_steps, text)
        elif int(point.fraction * 10) > self._tenths:
            self._tenths = int(point.fraction * 10)
            self.say(f"{point.fraction:4.0%}  {text}")
        if point.fraction == 1:  # another program may follow
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar, self._tenths = None, -1

    def _draw(self, total: int, env_steps: int, text: str) -> None:
        if self._bar is None:
            form = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
            self._bar = tqdm(total=total, initial=env_steps, unit_scale=True, dynamic_ncols=True, bar_format=form)
        self._bar.n = env_steps
        self._bar.set_postfix_str(text)
