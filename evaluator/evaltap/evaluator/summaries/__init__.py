"""The summary tables that the page reads: computed once from the rows and kept up to date."""
