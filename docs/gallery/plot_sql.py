"""
Scoring inside a database
=========================

A model is a sum of CASE expressions, so a database can score its own rows: no service, no export, no Python. The scores
are those of Python to the last digits.
"""

import sqlite3
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from rbr import RBRClassifier

rng = np.random.default_rng(0)
n = 50_000
customers = pd.DataFrame(
    {
        "id": np.arange(n),
        "age": rng.integers(18, 90, n),
        "balance": rng.lognormal(7, 1, n).round(2),
        "region": rng.choice(["north", "south", "east", "west"], n),
    }
)
customers.loc[rng.random(n) < 0.1, "balance"] = np.nan
leaves = rng.random(n) < 1 / (1 + np.exp(2 - 1.2 * (customers["age"] < 30) + 0.8 * (customers["balance"] > 2000)))
m = RBRClassifier(exclude=["id"], max_segments=4).fit(customers, leaves)

# %%
# The query
# ---------
# `dialect` may be "sqlite", "postgres", "duckdb" or "bigquery"; `output` the score, the probability or the mean.
query = m.model_.to_sql("customers", output="probability", name="risk")
print(query)

# %%
# The scores
# ----------
database = sqlite3.connect(":memory:")
customers.to_sql("customers", database, index=False)
start = time.perf_counter()
scored = pd.read_sql(query, database)
print(f"{n:,} rows scored in {time.perf_counter() - start:.1f} s")
difference = np.abs(scored["risk"] - m.predict_proba(customers)[:, 1]).max()
print(f"largest difference from Python: {difference:.1e}")
assert difference < 1e-12

# %%
# Without a table the expression stands alone, for a view or for a generated column.
expression = m.model_.to_sql(output="probability")
database.execute(f"CREATE VIEW risks AS SELECT id, {expression} AS risk FROM customers")
pd.read_sql("SELECT * FROM risks ORDER BY risk DESC LIMIT 5", database).round(4)

# %%
# A report
# --------
# Scores in the database can be grouped there, without moving a row.
by_age = pd.read_sql(
    """
    SELECT age / 5 * 5 AS age, avg(risk) AS risk
    FROM customers JOIN risks USING (id) GROUP BY 1 ORDER BY 1
    """,
    database,
)
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.bar(by_age["age"], by_age["risk"], width=4, align="edge", color="#d1495b")
ax.set(xlabel="age", ylabel="mean risk", title="computed by the database")
plt.show()
