"""What experiments share: typed settings, parts, run folders, statistics."""
