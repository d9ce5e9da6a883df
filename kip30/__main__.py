"""``python -m kip30``: the command line."""

from kip30_command import main

if __name__ == "__main__":
    main()
