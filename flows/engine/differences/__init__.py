"""What changed between two definitions of a flow, told as a person would."""
