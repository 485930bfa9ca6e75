"""Foreign files to our events: one file for each format, with `sniff` and `read`."""
