"""What stands behind the promises of the docs: ``python -m bench.proof`` writes docs/proof.md."""
