"""`python -m purejax_sc` and the command `purejax-sc`: the command line, in a process that answers to signals."""

import sys

from purejax_sc.cli import signals


def main() -> int:
    """Run the command line and return its exit status."""
    signals.leave_from_now_on()  # before anything that takes time is imported
    from purejax_sc.cli import commands

    return commands.main()


if __name__ == "__main__":
    sys.exit(main())
