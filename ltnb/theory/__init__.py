"""The papers' bounds, derived with sympy: one module a theory notebook, each bound an expression and a number."""
