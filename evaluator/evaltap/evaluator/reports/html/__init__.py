"""HTML for the report as one file and for the page: templates, charts, views of a case, style, keys."""
