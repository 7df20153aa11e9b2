"""`python -m purejax_sc`: the command line."""

import sys

from purejax_sc.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
