"""The same work done with other tools. Each file is a program of its own and imports nothing of ToolFlow."""
