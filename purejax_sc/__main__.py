"""`python -m purejax_sc` and the command `purejax-sc`: the command line, in a process that answers to signals."""

import sys

from purejax_sc.runs import interrupts


def main() -> int:
    """Run the command line and return its exit status."""
    interrupts.install()
    try:
        from purejax_sc.cli import commands  # takes a moment

        return commands.main()
    except KeyboardInterrupt as error:
        return interrupts.exit_status(error)


if __name__ == "__main__":
    sys.exit(main())
