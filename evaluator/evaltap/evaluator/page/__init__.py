"""The web page: cases, runs and reviews in a browser, rendered on the server."""
