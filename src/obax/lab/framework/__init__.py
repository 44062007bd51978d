"""What experiments share: settings, parts, run folders, results and statistics."""
