"""
The paper in thirty lines
=========================

Oymak, Mahdavi and Chen (2017) plant functions of ten among a hundred features, cut every feature into bins, and find
the functions by projected gradient descent onto tables of at most s_G features and s_L pieces. Here is all of it with
the parts of `rbr`.
"""

import matplotlib.pyplot as plt
import numpy as np

import rbr
from rbr.datasets import make_planted

data = make_planted(n_rows=2000, n_features=100, n_informative=10, random_state=0)

# %%
# Bins of equal counts; the codes of a row stand for the 0/1 matrix of the paper, which is never built.
B = rbr.Binner(max_bins=40).fit(data.X).transform(data.X)

# %%
# The set C of models, and Algorithm 1: f <- P_C(f - step * gradient), from zero.
C = rbr.Constraints(max_features=10, max_segments=8, shape="constant")
paper = rbr.solve(B, data.y, constraints=C, solver="algorithm1", step_size=1.0, max_iter=100, tol=0.0)
default = rbr.solve(B, data.y, constraints=C)

for name, s in {"Algorithm 1": paper, "default solver": default}.items():
    found = len(set(s.support) & set(data.support))
    print(f"{name:15} {found} of 10 features, R^2 {1 - 2 * s.loss / data.y.var():.3f}, {len(s.loss_path)} losses")

# %%
# P_C itself is one call. By the decomposition theorem it centres, projects and selects table by table, and what it
# returns is the nearest point of C.
f = np.random.default_rng(0).normal(size=B.n_coef)
g = C.project(f, B.offsets, B.weights)
tables = [g[B.offsets[j] : B.offsets[j + 1]] for j in range(100)]
used = [table for table in tables if table.any()]
print(len(used), "tables, at most", max(1 + np.count_nonzero(np.diff(table)) for table in used), "pieces")

# %%
# The loss falls linearly until the noise floor; the default solver takes fewer and longer steps.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.semilogy(paper.loss_path, label="Algorithm 1")
left.semilogy(default.loss_path, label="default solver")
left.set(xlabel="step", ylabel="loss")
left.legend()
j = int(data.support[np.argmax([np.ptp(function(data.X[:, 0])) for function in data.functions])])
order = np.argsort(data.X[:, j])
truth = dict(zip(data.support.tolist(), data.functions, strict=True))[j](data.X[order, j])
right.plot(data.X[order, j], truth - truth.mean(), color="gray", label="planted")
learned = default.f[B.offsets[j] : B.offsets[j + 1]][B.codes[j]]
right.step(data.X[order, j], learned[order], label="learned")
right.set(xlabel=f"feature {j}", ylabel="adds to y")
right.legend()
plt.show()
