"""How fast it is, against what, and whether the answer was right: part of the checkout, not of the package."""
