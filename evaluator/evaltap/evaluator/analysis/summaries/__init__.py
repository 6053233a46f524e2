"""The summary tables that the page reads: computed from the rows and kept up to date."""
