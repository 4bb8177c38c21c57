"""The engine: requests, scheduling, paged memory, sampling, models, text and the server."""

if __name__ != "octavo.engine":
    raise ImportError("this folder is a part of the octavo package: import octavo.engine, not engine")
