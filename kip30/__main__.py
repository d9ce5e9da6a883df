"""``python -m kip30``: the command line."""

from kip30.cli import main

if __name__ == "__main__":
    main()
