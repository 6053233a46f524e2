"""Records into rows: at most once, in order of revision, with offsets in the same transaction."""
