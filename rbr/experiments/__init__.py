"""The paper's figures, theorems and claims, measured again: one module per item, one command for all of them.

`rbr experiments` (or `python -m rbr.experiments`) writes, for every item, a JSON file of numbers and a PNG drawn from
those numbers alone, and a RESULTS.md that compares each claim of the paper with what was measured.
"""
