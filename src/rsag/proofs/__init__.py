"""Compositions against worlds: proofs, counterexamples, and which oracle sees which fault."""
