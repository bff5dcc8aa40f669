"""Runs as documents: what the API answers, exports hold, webhooks send and pages offer to copy."""
