"""Monitor live traffic: detect when a share of turns rose, and which slice of them changed."""
