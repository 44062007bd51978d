"""What every room may use: pytrees, checks of arguments, whole files, packing, progress bars."""
