"""The page of `obax serve` in a browser: wide and narrow, by day and by night."""

import json

import numpy as np
import pytest
from browser import FOUND, browser
from test_serve import learn, served

from obax.estimators import Pool, StreamingClassifier
from obax.serve.model import Saves, ServedModel


def models(folder):
    load = ServedModel("load", StreamingClassifier(), folder / "load.obax", Saves())
    pool = Pool(StreamingClassifier(), "shop")
    return load, ServedModel("shops", pool, folder / "shops.obax", Saves())


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine: the page is not opened")
def test_the_dashboard_fits_and_leads_from_model_to_model(tmp_path):
    X = np.random.default_rng(0).standard_normal((6000, 2)).round(3)
    drift = np.arange(6000) > 3000
    labels = ["up" if (a > b) != late else "down" for (a, b), late in zip(X, drift, strict=True)]
    with served(*models(tmp_path)) as client, browser(tmp_path / "profile") as shown:
        for begin in range(0, 6000, 500):
            span = slice(begin, begin + 500)
            learn(client, "load", X[span], labels[span])
        keys = [f"shop {i % 12}" for i in range(6000)]
        learn(client, "shops", X, labels, keys=keys)
        bad = {"rows": [{"a": [1]}, {"b": {}}], "targets": ["up", "up"]}
        client.post("/v2/models/load/learn", json=bad)
        for width in (1280, 400):
            for dark in (False, True):
                name = f"{width}-{'dark' if dark else 'light'}.png"
                shown.open(f"{client.base_url}/", width, dark=dark)
                shown.until("document.querySelectorAll('canvas').length > 1")
                assert not shown.wider(width)
                assert shown.named("heading")[0].startswith("How well is this model predicting")
                assert shown.run("document.querySelectorAll('nav a').length") == 2
                shown.run("document.getElementById('folded').open = true; 1")
                shown.picture(tmp_path / name)
                shown.open(f"{client.base_url}/?model=shops", width, dark=dark)
                shown.until("document.querySelectorAll('td').length > 12")
                assert not shown.wider(width)
                shown.picture(tmp_path / f"pool-{name}")
        assert shown.run("document.querySelector('nav a[aria-current]').textContent") == "shops"
        assert json.dumps(shown.problems) == "[]"
