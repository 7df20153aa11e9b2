"""Progress on the terminal."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from tqdm import tqdm

from purejax_sc.training.compiled import Point


class Bar:
    """A bar with environment steps per second and the latest return; on anything but a terminal, some plain lines: at
    the first log point and at every tenth."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._total = self._first = self._tenths = 0
        self._begin = 0.0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """On a terminal, the seconds since the beginning stand behind the text."""
        if not sys.stderr.isatty():
            self.say(text)
            yield
            return
        ended = threading.Event()
        clock = threading.Thread(target=_show_seconds, args=(text, ended), daemon=True)
        clock.start()
        try:
            yield
        finally:
            ended.set()
            clock.join()

    def start(self, total: int, done: int) -> None:
        self._total, self._first, self._tenths = total, done, done * 10 // total - 1  # a line soon
        self._begin = time.perf_counter()
        if done:
            self.say(f"going on at {done / total:.0%}")
        if sys.stderr.isatty():
            # log points are rare: each is shown, also one that comes soon after another
            self._bar = tqdm(
                total=total, initial=done, unit=" steps", unit_scale=True, dynamic_ncols=True, mininterval=0, miniters=1
            )

    def advance(self, point: Point) -> None:
        returns = point.metrics["episode_return"]
        known = returns[np.isfinite(returns)]
        latest = f"return {known.mean():.4g}" if len(known) else "no episode ended"
        env_steps = point.env_steps * len(returns)
        if self._bar is not None:
            self._bar.set_postfix_str(latest, refresh=False)
            self._bar.update(env_steps - self._bar.n)
        elif env_steps * 10 // self._total > self._tenths:
            self._tenths = env_steps * 10 // self._total
            rate = (env_steps - self._first) / (time.perf_counter() - self._begin)
            self.say(f"{env_steps / self._total:4.0%}  {rate:,.0f} env steps/s  {latest}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def _show_seconds(text: str, ended: threading.Event) -> None:
    """The text and how long it has lasted, every second on the same line, until the event is set."""
    begin = time.perf_counter()
    while True:
        # in one piece and with the cursor at its beginning, for whatever else may be written in between
        print(f"{text} {time.perf_counter() - begin:.0f} s", end="\r", file=sys.stderr, flush=True)
        if ended.wait(1.0):
            break
    print("\x1b[K", end="", file=sys.stderr, flush=True)  # which the result overwrites
