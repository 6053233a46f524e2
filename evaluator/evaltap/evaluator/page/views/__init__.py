"""The views, one page per module: the data that it reads, in the form that its template shows."""
