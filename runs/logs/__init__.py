"""Log lines: what each of them tells besides its message, and how it is written."""
