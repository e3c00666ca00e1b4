"""The paper's figures, theorems and claims, measured again: one module per item, one command for all of them.

`rbr experiments` (or `python -m rbr.experiments`) writes for every item a JSON of numbers and a PNG drawn from these
numbers alone, and a RESULTS.md that sets each claim of the paper beside what was measured.
"""
