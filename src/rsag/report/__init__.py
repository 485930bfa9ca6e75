"""What people look at: tables for the terminal. Reads records, never the code that made them."""
