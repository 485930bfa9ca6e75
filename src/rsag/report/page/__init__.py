"""The report as one page: records to a view, the view through templates to a file that opens from disk."""
