"""The contract: what users, scripts and stored data rely on, whatever the code inside looks like.

These tests use public surfaces only: HTTP, commands, stored rows, ``FlowSpec`` documents. What they expect is in
``golden/*.yaml`` and ``openapi.yaml``; ``TOOLFLOW_TEST_UPDATE_GOLDEN=1 pytest tests/contract`` rewrites these.
"""
