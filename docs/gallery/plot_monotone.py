"""
Monotone constraints
====================

The price of a used car must not rise with its mileage, or a customer will ask why. Where data are few, an unconstrained
curve may rise where noise tells it to. A constraint is a promise about every prediction; it need not make the model
more accurate, and here it does not.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from rbr import RBRRegressor


def price(cars):
    return 6 + 14 * np.exp(-cars["mileage"] / 90) + 6 * np.exp(-cars["age"] / 4)


def draw(n, rng):
    return pd.DataFrame({"mileage": rng.gamma(2.0, 45.0, n), "age": rng.uniform(0, 15, n)})


rng = np.random.default_rng(0)
cars = draw(300, rng)
paid = (price(cars) + rng.normal(scale=4.0, size=300)).rename("price")

# %%
# `monotonic_cst` has scikit-learn's forms: -1 for falling, 1 for rising, by column name or as an array. Monotone tables
# are steps; the default may also draw lines. A third way: take the default, and make it monotone by an edit afterwards,
# the nearest table that never rises. That needs no data, but the other terms stay as they were.
default = RBRRegressor().fit(cars, paid)
falling = RBRRegressor(monotonic_cst={"mileage": -1, "age": -1}).fit(cars, paid)
edited = default.model_.make_monotone("mileage", increasing=False).make_monotone("age", increasing=False)

new = draw(5000, rng)
along = pd.DataFrame({"mileage": np.linspace(0, 300, 1000), "age": 5.0})
models = {"default": default, "falling": falling, "default, edited": edited}
for name, m in models.items():
    error = np.sqrt(np.mean((m.predict(new) - price(new)) ** 2))
    rises = int((np.diff(m.predict(along)) > 1e-9).sum())
    print(f"{name:16} error of the mean {error:.2f}, places where the price rises with mileage: {rises}")

# %%
fig, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
ax.plot(cars["mileage"], paid, ".", color="lightgray", label="cars of all ages")
ax.plot(along["mileage"], price(along), color="gray", label="truth, at five years")
for name, m in models.items():
    ax.plot(along["mileage"], m.predict(along), label=name)
ax.set(xlabel="mileage, thousand km", ylabel="price, thousands", xlim=(0, 300), ylim=(0, 30))
ax.legend()
plt.show()

# %%
# The promise holds for every row, whatever the other columns are, because terms add up:
worse = new.assign(mileage=new["mileage"] + rng.uniform(0, 50, len(new)))
print("dearer with more mileage:", int((falling.predict(worse) > falling.predict(new) + 1e-9).sum()), "of", len(new))
