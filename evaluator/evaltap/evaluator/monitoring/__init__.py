"""Live traffic under watch: when a share of turns rose, and which slice of them changed."""
