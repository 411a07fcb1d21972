"""`python -m sightline`: the command line."""

from sightline.cli import main

if __name__ == "__main__":
    main()
