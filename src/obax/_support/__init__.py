"""Modules that every package may use: pytrees, checks of arguments, files, packing, compilation."""
