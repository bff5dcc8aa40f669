"""What statistics of runs come to: sums, rates, means and percentiles, read off the daily rows.

Pages and the API show the same figures; words, drawings and documents are made of them there. ``docs/statistics.md``
says what each number means.
"""
