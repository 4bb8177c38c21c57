"""Platforms: the op contract, the chips that implement it, and the one chooser among them."""

if __name__ != "octavo.platforms":
    raise ImportError("this folder is a part of the octavo package: import octavo.platforms, not platforms")
