"""Records as rows: each at most once, in the order of revisions, with the offsets in the same transaction."""
