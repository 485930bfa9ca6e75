"""The words that cross process and time: documents, rank-local rows, and the names inside a run directory."""
