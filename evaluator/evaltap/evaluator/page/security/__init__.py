"""Control who may see the page, and what a browser may do with it."""
