"""One page a module: what it reads, as frozen data, and what its template shows."""
