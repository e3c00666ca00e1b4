"""Golden fits: tables that were right when they were recorded, so that numbers change only on purpose.

`python tests/test_golden.py` records them again; say in the commit why they changed. benches/golden.py compares larger
fits, on real tables too, with what another version of the code finds and costs.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import rbr

FILE = Path(__file__).with_name("golden.json")
SHAPES = ("constant", "linear", "mixed", "increasing", "levels", "frequency", "free")


def table(loss, n_rows=400, n_features=6, seed=0):
    """Columns with ties and missing values, and a target for the loss that depends on the first three."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    X[:, 1] = np.round(X[:, 1])
    z = np.sin(2 * X[:, 0]) + 0.7 * (X[:, 1] > 0) + 0.5 * X[:, 2]
    if loss != "frequency":
        X[rng.random(n_rows) < 0.1, 0] = np.nan
    if loss == "log_loss":
        y = (rng.random(n_rows) < 1 / (1 + np.exp(-2 * z))).astype(float)
    elif loss == "multinomial":
        y = np.argmax(np.outer(z, [-1.5, 0.0, 1.5]) + rng.gumbel(size=(n_rows, 3)), axis=1)
    elif loss == "poisson":
        y = rng.poisson(np.exp(z / 2)).astype(float)
    elif loss in ("gamma", "tweedie"):
        y = rng.gamma(2.0, np.exp(z / 2) / 2) * (1.0 if loss == "gamma" else rng.random(n_rows) < 0.8)
    else:
        y = z + 0.3 * rng.standard_normal(n_rows)
    weights = rng.integers(0, 3, n_rows).astype(float)
    return X, y, weights, 0.1 * rng.standard_normal(n_rows)


def fit(loss="squared_error", shape="mixed", *, jump_cost=0.5, max_bins=24, weighted=False, n_rows=400, **arguments):
    X, y, weights, offset = table("frequency" if shape == "frequency" else loss, n_rows)
    X = np.delete(X, 1, axis=1) if shape == "frequency" else X  # its bins must weigh the same
    rows = {"sample_weight": weights, "offset": offset} if weighted else {}
    binner = rbr.Binner(max_bins=20 if shape == "frequency" else max_bins).fit(X, rows.get("sample_weight"))
    design = binner.transform(X, rows.get("sample_weight"))
    names = ("max_features", "max_segments")
    limits = {name: arguments.pop(name) for name in names if name in arguments}
    constraints = rbr.Constraints(shape=shape, jump_cost=jump_cost, **limits)
    found = rbr.solve(design, y, loss=loss, constraints=constraints, **rows, **arguments)
    return {"f": found.f, "intercept": found.intercept, "support": found.support, "loss": found.loss}


def estimate(kind, loss, **parameters):
    X, y, weights, _ = table(loss, n_rows=300, n_features=4)
    found = kind(random_state=0, max_bins=24, **parameters).fit(X, y, sample_weight=weights)
    terms = found.model_.terms
    return {
        "f": np.concatenate([term.all_values for term in terms]),
        "intercept": found.intercept_,
        "support": np.concatenate([term.columns for term in terms]),
        "loss": found.model_.training_loss,
    }


CASES = {
    **{f"loss {loss}": lambda loss=loss: fit(loss) for loss in rbr.losses.LOSSES},
    **{f"shape {shape}": lambda shape=shape: fit(shape=shape, max_segments=5) for shape in SHAPES},
    "weights and offset, log_loss": lambda: fit("log_loss", weighted=True),
    "weights and offset, huber": lambda: fit("huber", weighted=True),
    "limits without a jump cost": lambda: fit(jump_cost=0.0, max_features=3, max_segments=4),
    "ridge, poisson": lambda: fit("poisson", alpha=0.05),
    "Algorithm 1": lambda: fit("log_loss", "constant", solver="algorithm1", max_iter=60, tol=0.0, max_segments=4),
    "many rows, log_loss": lambda: fit("log_loss", n_rows=60_000),
    "many rows, squared_error": lambda: fit(n_rows=60_000),
    "bags": lambda: estimate(rbr.RBRRegressor, "squared_error", n_bags=3),
    "bags of classes": lambda: estimate(rbr.RBRClassifier, "log_loss", n_bags=3),
    "refined cuts": lambda: estimate(
        rbr.RBRRegressor, "squared_error", n_bags=0, shape="constant", max_segments=4, refine_cuts=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fit_finds_the_tables_that_it_has_found_before(name):
    golden = json.loads(FILE.read_text())[name]
    found = CASES[name]()
    np.testing.assert_array_equal(found["support"], golden["support"])
    for field in ("f", "intercept", "loss"):
        np.testing.assert_allclose(found[field], golden[field], rtol=1e-9, atol=1e-9, err_msg=field)


def test_every_golden_fit_is_compared():
    assert set(json.loads(FILE.read_text())) == set(CASES)


if __name__ == "__main__":
    lines = [
        f" {json.dumps(name)}: {json.dumps({k: np.asarray(v).tolist() for k, v in CASES[name]().items()})}"
        for name in CASES
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
