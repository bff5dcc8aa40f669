"""Benchmarks, run by ``make bench``. Figures are compared within one run: machines differ and are noisy."""
