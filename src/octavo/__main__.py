"""`python -m octavo` is the `octavo` command."""

from octavo.engine.server.cli import entry

if __name__ == "__main__":
    entry()
