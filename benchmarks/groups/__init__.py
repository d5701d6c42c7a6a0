"""The groups of benchmarks, one module each."""
