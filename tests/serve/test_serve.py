"""`obax serve`: the protocol, learning, bounds, metrics, and what is left after a stop."""

import asyncio
import json
import socket
import threading
import time

import httpx
import numpy as np
import pytest
from running_server import running
from typer.testing import CliRunner

import obax
from obax import cli
from obax._support import files
from obax.estimators import Pool, StreamingClassifier, StreamingRegressor
from obax.serve import app as server, page
from obax.serve.app import application
from obax.serve.guard import Bounds
from obax.serve.model import Saves, ServedModel


def served(*models, bounds=None):
    """A client of a server of these models, in a thread of this process."""
    stop = asyncio.Event()
    return running(application(models, bounds or Bounds(), stop), stop)


def tensor(name, data, datatype="FP64"):
    return {"name": name, "shape": [len(data)], "datatype": datatype, "data": data}


def rows_of(count, seed=0):
    X = np.random.default_rng(seed).standard_normal((count, 2)).round(3)
    labels = ["up" if a > b else "down" for a, b in X.tolist()]
    return X, labels


def learn(client, name, X, labels, **more):
    inputs = [tensor("a", X[:, 0].tolist()), tensor("b", X[:, 1].tolist())]
    answer = client.post(
        f"/v2/models/{name}/learn", json={"inputs": inputs, "targets": labels} | more
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_tensors_are_learned_and_predicted_as_by_the_model_itself(tmp_path):
    X, labels = rows_of(200)
    plain = StreamingClassifier()
    plain.learn_many([{"a": a, "b": b} for a, b in X.tolist()], labels)
    with served(ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves())) as client:
        assert client.get("/v2").json()["name"] == "obax"
        for path in ("health/live", "health/ready", "models/m/ready"):
            assert client.get(f"/v2/{path}").status_code == 200
        assert learn(client, "m", X, labels)["learned"] == 200
        names = [one["name"] for one in client.get("/v2/models/m").json()["inputs"]]
        assert names == ["a", "b"]
        request = {"id": "r1", "inputs": [tensor("a", [0.5]), tensor("b", [-0.5])]}
        answer = client.post("/v2/models/m/infer", json=request).json()
        assert (answer["id"], answer["model_name"]) == ("r1", "m")
        outputs = {one["name"]: one for one in answer["outputs"]}
        expected = plain.predict_proba_one({"a": 0.5, "b": -0.5})
        assert outputs["prediction"]["data"] == ["up"]
        assert outputs["probabilities"]["shape"] == [1, 2]
        classes = outputs["probabilities"]["parameters"]["classes"]
        found = dict(zip(classes, outputs["probabilities"]["data"], strict=True))
        assert found == pytest.approx(expected, rel=1e-12)
        # A plain row, with a set of classes; and several.
        answer = client.post(
            "/v2/models/m/infer", json={"row": {"a": 0.5, "b": -0.5}, "coverage": 0.9}
        ).json()
        assert answer["prediction"] == "up" and answer["set"] == ["up"]
        answer = client.post("/v2/models/m/infer", json={"rows": [{"a": 2.0}, {"b": 2.0}]}).json()
        assert [one["prediction"] for one in answer["predictions"]] == ["up", "down"]


def test_the_id_of_a_prediction_is_the_id_of_its_label(tmp_path):
    served_model = ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves())
    with served(served_model) as client:
        post = client.post
        batch = {"id": "r2", "inputs": [tensor("a", [1.0, 2.0])]}
        assert post("/v2/models/m/infer", json={"id": "r1", "row": {"a": 1.0}}).status_code == 200
        assert post("/v2/models/m/infer", json=batch).status_code == 200
        again = post("/v2/models/m/infer", json={"id": "r1", "row": {"a": 7.0}})
        assert again.status_code == 409 and "another row" in again.json()["error"]
        one = post("/v2/models/m/learn", json={"id": "r1", "target": "x"}).json()
        assert (one["learned"], one["rows"]) == (1, 1)
        both = post("/v2/models/m/learn", json={"id": "r2", "targets": ["x", "y"]}).json()
        assert (both["learned"], both["rows"]) == (2, 3)
        twice = post("/v2/models/m/learn", json={"id": "r1", "target": "x"})
        assert twice.status_code == 404 and "learned already" in twice.json()["error"]
        some = {"ids": ["r1", "r3"], "targets": ["x", "y"]}
        post("/v2/models/m/infer", json={"id": "r3", "row": {"a": 1.0}})
        some = post("/v2/models/m/learn", json=some).json()
        assert some["learned"] == 1 and some["rejected"][0]["row"] == 0
    # A row that waits is in the checkpoint.
    with served(ServedModel("m", None, tmp_path / "m.obax", Saves())) as client:
        assert client.get("/metrics").text.count('obax_rows_learned{model="m"} 4.0') == 1


def test_words_dates_and_quoted_numbers(tmp_path):
    path = tmp_path / "m.obax"
    with served(ServedModel("m", Pool(StreamingRegressor(), "shop"), path, Saves())) as client:
        post = client.post
        dates = [f"2024-01-{day:02}" for day in range(1, 21)]
        inputs = [
            tensor("shop", ["007"] * 20, "BYTES"),
            tensor("day", dates, "BYTES"),
            tensor("place", ["here", "there"] * 10, "BYTES"),
            tensor("load", list(range(20)), "INT32"),
        ]
        body = {"inputs": inputs, "parameters": {"targets": list(range(20))}}
        assert post("/v2/models/m/learn", json=body).json()["learned"] == 20
        row = {"shop": "007", "day": "2024-01-21T00:00:00", "place": "here", "load": "20"}
        first = post("/v2/models/m/infer", json={"row": row}).json()["prediction"]
        # The key stays a word, the load is the number; one that is not known is missing.
        again = post("/v2/models/m/infer", json={"row": row | {"load": 20}}).json()["prediction"]
        missing = post("/v2/models/m/infer", json={"row": row | {"load": "?"}}).json()["prediction"]
        assert first == again != missing and abs(first - 20) < 2
        answer = client.get("/v2/models/m/versions/1").json()
        kinds = {one["name"]: one["datatype"] for one in answer["inputs"]}
        assert kinds == {"shop": "BYTES", "day": "BYTES", "place": "BYTES", "load": "FP64"}


def test_numbers_have_intervals(tmp_path):
    X, _ = rows_of(200)
    with served(ServedModel("r", StreamingRegressor(), tmp_path / "r.obax", Saves())) as client:
        learn(client, "r", X, (3 * X[:, 0]).tolist())
        request = {"inputs": [tensor("a", [1.0]), tensor("b", [0.0])]}
        request["parameters"] = {"coverage": 0.8}
        outputs = client.post("/v2/models/r/infer", json=request).json()["outputs"]
        assert outputs[0]["data"][0] == pytest.approx(3.0, abs=0.2)
        low, high = outputs[1]["data"]
        assert outputs[1]["name"] == "interval" and low < outputs[0]["data"][0] < high


def test_a_pool_learns_each_key(tmp_path):
    X, labels = rows_of(300)
    keys = ["n", "s"] * 150
    told = [label if key == "n" else "up" if label == "down" else "down"
            for key, label in zip(keys, labels, strict=True)]  # fmt: skip
    path = tmp_path / "p.obax"
    with served(ServedModel("p", Pool(StreamingClassifier(), "shop"), path, Saves())) as client:
        assert learn(client, "p", X, told, keys=keys)["learned"] == 300
        for key, expected in (("n", "up"), ("s", "down")):
            row = {"a": 1.0, "b": -1.0, "shop": key}
            answer = client.post("/v2/models/p/infer", json={"id": f"id-{key}", "row": row}).json()
            assert answer["prediction"] == expected
        late = {"id": "id-s", "target": "down"}
        assert client.post("/v2/models/p/learn", json=late).json()["rows"] == 301
    # The other row still waits after a restart, with its key.
    with served(ServedModel("p", None, path, Saves())) as client:
        late = {"id": "id-n", "target": "up"}
        assert client.post("/v2/models/p/learn", json=late).json()["rows"] == 302
        page = client.get("/data.json").json()
        assert page["table"][0][0] == "key, worst first" and ["keys", "2"] in page["facts"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "must be an object"),
        (b"{}", 400, "infer needs inputs"),
        (b'{"inputs": []}', 400, "list of tensors"),
        (b'{"inputs": [{"name": "a"}]}', 400, "must have name, shape, datatype and data"),
        (json.dumps({"inputs": [tensor("a", [1.0]) | {"shape": [2]}]}).encode(), 400, "2 values"),
        (json.dumps({"inputs": [tensor("a", [1.0], [])]}).encode(), 400, "datatype of a is []"),
        (json.dumps({"inputs": [tensor("a", ["x"])]}).encode(), 400, "must be numbers"),
        (json.dumps({"inputs": [tensor("a", [1]), tensor("b", [1, 2])]}).encode(), 400, "as many"),
        (json.dumps({"row": {"a": 1}, "ids": [1, 2]}).encode(), 400, "each of 1 rows"),
        (json.dumps({"row": {"a": 1}, "coverage": 3}).encode(), 400, "coverage"),
        (b'{"rows": []}', 400, "a list of at least one object"),
        (b'{"row": [1]}', 400, "row must be an object"),
        (b"[" * 50_000, 400, "not JSON"),
        (b" " * 70_000, 413, "larger than 65,536 bytes"),
    ],
)
def test_errors_follow_the_protocol(client_of_one, body, status, text):
    answer = client_of_one.post("/v2/models/m/infer", content=body)
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"} and text in answer.json()["error"]


@pytest.fixture(scope="module")
def client_of_one(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "m.obax"
    model = ServedModel("m", StreamingClassifier(), path, Saves())
    with served(model, bounds=Bounds(body_bytes=1 << 16, seconds=0.5, requests=4)) as client:
        yield client


def test_other_errors(client_of_one):
    get, post = client_of_one.get, client_of_one.post
    assert "there are: m" in post("/v2/models/x/infer", json={}).json()["error"]
    assert get("/nothing").status_code == 404
    assert get("/v2/models/m/infer").status_code == 405
    assert "learn needs target" in post("/v2/models/m/learn", json={"row": {}}).json()["error"]
    assert post("/v2/models/m/learn", json={"target": 1}).status_code == 400
    assert get("/", headers={"Host": "evil.example"}).status_code == 403
    text = get("/metrics").text
    assert 'obax_errors_total{status="404"}' in text


def test_a_slow_request_is_ended_and_a_full_queue_refuses(client_of_one):
    address = client_of_one.base_url.host, client_of_one.base_url.port
    head = b"POST /v2/models/m/learn HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"
    slow = []
    for _ in range(4):
        connection = socket.create_connection(address)
        connection.sendall(head)
        slow.append(connection)
    time.sleep(0.2)
    busy = client_of_one.get("/v2/health/live")
    assert busy.status_code == 503 and busy.headers["Retry-After"] == "1"
    for connection in slow:
        connection.settimeout(5)
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
        connection.close()
    assert client_of_one.get("/v2/health/live").status_code == 200


def test_a_token_is_asked_for(tmp_path):
    model = ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves())
    with served(model, bounds=Bounds(token="secret", local=False)) as client:
        assert client.get("/v2/health/live").status_code == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic !"}):
            answer = client.get("/v2/models/m", headers=headers)
            assert answer.status_code == 401 and "token" in answer.json()["error"]
        bearer = {"Authorization": "Bearer secret"}
        assert client.get("/v2/models/m", headers=bearer).status_code == 200
        # What a browser sends that has asked for a password.
        assert client.get("/", auth=("anyone", "secret")).status_code == 200


def test_the_metrics(tmp_path):
    X, labels = rows_of(50)
    with served(ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves())) as client:
        learn(client, "m", X, labels)
        client.post("/v2/models/m/infer", json={"id": "w", "row": {"a": 1.0}})
        bad = [{"a": [value]} for value in range(30)] + [{"c": {}}]
        answer = client.post("/v2/models/m/learn", json={"rows": bad, "targets": ["up"] * 31})
        assert len(answer.json()["rejected"]) == 31
        text = client.get("/metrics").text
        for line in (
            'obax_rows_learned{model="m"} 50.0',
            'obax_rows_rejected{model="m"} 31.0',
            'obax_pending_labels{model="m"} 1.0',
            'obax_request_seconds_count{model="m",operation="learn"} 2.0',
            'obax_member_share{member="tuned",model="m"}',
            'obax_hyperparameter{model="m",name="memory",of=""}',
            'obax_mean_loss{model="m"}',
            "obax_checkpoint_age_seconds",
        ):
            assert line in text, line
        # Reasons that differ in a value are one kind.
        kinds = [line for line in text.splitlines() if line.startswith("obax_rejected_by_reason{")]
        assert sorted(float(line.split()[-1]) for line in kinds) == [1.0, 30.0]


def test_events_follow_a_model_and_end_with_the_server(tmp_path):
    model = ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves())
    with served(model) as client, client.stream("GET", "/v2/models/m/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        line = next(answer.iter_lines())
        assert json.loads(line.removeprefix("data: "))["rows_learned"] == 0


def test_the_page(client_of_one):
    answer = client_of_one.get("/")
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy and "<script>" in answer.text
    page = client_of_one.get("/data.json").json()
    assert page["models"] == ["m"] and page["trouble"] is None
    assert client_of_one.get("/data.json?model=x").status_code == 404


def test_a_page_that_takes_long_is_shown_again(tmp_path, monkeypatch):
    calls = []

    def slowly(model):
        calls.append(model)
        time.sleep(0.2)
        return page.Page("m").contents()

    monkeypatch.setattr(server, "page_of_model", slowly)
    with served(ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves())) as client:
        first, second = (client.get("/data.json").json() for _ in range(2))
        assert first == second and len(calls) == 1
    monkeypatch.setattr(server, "PAUSE", 0)
    with served(ServedModel("m", None, tmp_path / "m.obax", Saves())) as client:
        first, second = (client.get("/data.json").json() for _ in range(2))
        assert first["updated"] < second["updated"] and len(calls) == 3


def test_checkpoints_after_rows_and_seconds(tmp_path):
    X, labels = rows_of(60)
    for saves in (Saves(rows=20, seconds=1000.0), Saves(rows=10**6, seconds=0.1)):
        path = tmp_path / f"m{saves.rows}.obax"
        with served(ServedModel("m", StreamingClassifier(), path, saves)) as client:
            learn(client, "m", X, labels)
            until = time.monotonic() + 10
            while obax.load(path).learned_ < 60 and time.monotonic() < until:
                time.sleep(0.05)
            assert obax.load(path).learned_ == 60


def test_a_checkpoint_that_is_being_written_when_the_server_ends(tmp_path, monkeypatch):
    write, ended = files.write_bytes, []

    def slowly(path, data):
        if ended == []:
            ended.append("begun")
            time.sleep(0.5)
        write(path, data)
        ended.append(len(data))

    async def play():
        model = ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves(seconds=0.05))
        body = b'{"row":{"a":1},"target":1}'
        await model.learn(body)
        saver = asyncio.create_task(model.save_from_time_to_time())
        while not ended:
            await asyncio.sleep(0.01)
        saver.cancel()
        await model.learn(body)
        await model.save()

    monkeypatch.setattr(files, "write_bytes", slowly)
    asyncio.run(play())
    assert obax.load(tmp_path / "m.obax").learned_ == 2 and len(ended) == 3


def test_predictions_and_learning_at_once(tmp_path):
    X, labels = rows_of(400)
    plain = StreamingClassifier()
    for begin in range(0, 400, 40):
        plain.play(
            [{"a": a, "b": b} for a, b in X[begin : begin + 40].tolist()],
            labels[begin : begin + 40],
        )
    failures = []
    with served(ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves())) as client:

        def predict():
            with httpx.Client(base_url=client.base_url) as other:
                for _ in range(40):
                    answer = other.post("/v2/models/m/infer", json={"rows": [{"a": 1.0}] * 50})
                    if answer.status_code != 200:
                        failures.append(answer.text)

        threads = [threading.Thread(target=predict) for _ in range(3)]
        for thread in threads:
            thread.start()
        for begin in range(0, 400, 40):
            learn(client, "m", X[begin : begin + 40], labels[begin : begin + 40])
        for thread in threads:
            thread.join()
    assert failures == []
    assert obax.load(tmp_path / "m.obax").mean_loss_ == plain.mean_loss_


def command(*arguments):
    return CliRunner().invoke(cli.app, ["serve", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "needs a model's file or folder"),
        (("nowhere",), "neither a model's file nor a folder"),
        (("--name", "x"), "pass --new"),
        (("--new", "classifier"), "needs the --name"),
        (("--new", "tree", "--name", "x"), "classifier or regressor"),
        (("--new", "classifier", "--name", "a/b"), "letters, digits"),
        (("--host", "0.0.0.0", "--new", "classifier", "--name", "x"), "set a token"),
    ],
)
def test_invalid_arguments(tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OBAX_TOKEN", raising=False)
    assert text in str(command(*arguments).exception)


def test_checkpoints_of_a_stream_are_read_only(tmp_path):
    model = StreamingClassifier()
    with served(ServedModel("m", model, None, Saves())) as client:
        answer = client.post("/v2/models/m/learn", json={"row": {"a": 1.0}, "target": 1})
        assert answer.status_code == 409 and "does not learn" in answer.json()["error"]
        body = {"row": {"a": 1.0}, "id": "r"}
        assert client.post("/v2/models/m/infer", json=body).status_code == 200
