"""``python -m queuemodel.data [FOLDER]``: copy the examples there."""

import sys

from ..errors import QueueModelError
from . import copy_examples

if __name__ == "__main__":
    try:
        for path in copy_examples(*sys.argv[1:2]):
            print(path)
    except QueueModelError as error:
        sys.exit(f"queuemodel: error: {error}")
