"""
Columns that act together
=========================

A sum of tables of one column each cannot say "young, and with a fast car". `interactions="auto"` adds the pairs that
have evidence, `max_rectangles` tells them in words.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from rbr import RBRRegressor

rng = np.random.default_rng(0)
n = 6000
drivers = pd.DataFrame(
    {
        "age": rng.integers(18, 80, n),
        "power": rng.uniform(40, 250, n),
        "mileage": rng.gamma(3, 5, n),
        "colour": rng.choice(["red", "blue", "grey"], n),
    }
)
young_and_fast = (drivers["age"] < 26) & (drivers["power"] > 150)
cost = 2 + 0.01 * drivers["power"] + 0.05 * drivers["mileage"] + 3.0 * young_and_fast + rng.normal(size=n)
cost = cost.rename("cost")
X, X_test, y, y_test = train_test_split(drivers, cost, random_state=0)

# %%
for name, m in {
    "no pairs": RBRRegressor(),
    "surfaces": RBRRegressor(interactions="auto"),
    "rectangles": RBRRegressor(interactions="auto", max_rectangles=4),
}.items():
    m.fit(X, y)
    print(f"{name:11} R^2 {m.score(X_test, y_test):.3f}  terms: {', '.join(term.name for term in m.terms_)}")

# %%
# In words
# --------
# The last model has one pair of four rectangles. What of it is a function of one column alone belongs to that column's
# term when it is read: `purified` moves it there, and predictions stay as they are.
for piece in m.model_["age & power"].pieces:
    print(f"{piece.text}: {piece.value:+.2f} for {piece.weight:.0%} of the rows")

# %%
pure = m.model_.purified()
for term in pure.terms:
    print(f"{term.name}: mean size {term.importance:.3f}")

# %%
# In a picture
# ------------
# A heat map on the columns' own scales, fainter where rows are rare.
m.plot("age & power")
plt.show()

# %%
# One driver
# ----------
print(m.explain_row({"age": 21, "power": 200, "mileage": 12, "colour": "red"}))
