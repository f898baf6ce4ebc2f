"""`python -m gradwire.server`: the same as the `gradwire` command.

The guard matters: engine processes are spawned, and import this module again.
"""

import sys

from gradwire.server.cli import main

if __name__ == "__main__":
    sys.exit(main())
