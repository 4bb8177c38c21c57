"""The commands of `octavo`, one file each; a command's module is imported only when it is called.

A module has `DESCRIPTION` and `EXAMPLES` (help texts), `add_arguments(parser)` and `run(args) -> int` (the exit code).
With `TAKES_REST = True` the words after `--` are not parsed but put into `args.rest`.
"""
