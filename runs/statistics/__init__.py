"""Statistics of ended runs: daily rows, what they add up to, and the state of the queue.

``docs/statistics.md`` says what each number means.
"""
