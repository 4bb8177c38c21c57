"""Weight formats: one table, one file per format, unpack and pack with a plain reference."""

if __name__ != "octavo.quant":
    raise ImportError("this folder is a part of the octavo package: import octavo.quant, not quant")
