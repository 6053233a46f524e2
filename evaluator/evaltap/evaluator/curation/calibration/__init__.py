"""Compare judges with human labels."""
