"""`python -m octavo` is the `octavo` command."""

from octavo.engine.server.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
