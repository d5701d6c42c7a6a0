"""What the library costs beside its peers. One command: `python -m benchmarks [--quick] [--only GROUP]`."""
