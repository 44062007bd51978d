"""`obax serve` against a FastAPI app that calls River: requests per second and latencies.

Three processes on loopback: both servers (uvicorn, one process each), and this one, which sends
requests that were prepared before over connections that stay open. The servers take turns, so that
a noisy machine is noisy to both of them; what is judged is the median ratio of their rows per
second. The processor time of each server per request (Linux only) hardly depends on what else the
machine does. River's model is its usual one, a standard scaler and logistic regression; it learns
the rows of a batch one after another, as `obax` does.

    python -m benchmarks.serve            # some two minutes
    python -m benchmarks.serve --quick    # a smoke run: nothing is judged
"""

import argparse
import asyncio
import contextlib
import json
import math
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FEATURES = 16
CONNECTIONS = 8
BATCH = 200
LIMITS = {"single": 1.0, "batch": 3.0}
"""How many times as many rows per second as River's app."""


class Load(NamedTuple):
    """Requests of one kind, for both servers."""

    name: str
    kind: str
    rows: int
    ours: list[bytes]
    river: list[bytes]


class Run(NamedTuple):
    """Rows per second, the latency of each request, and the server's processor time for each."""

    rate: float
    latencies: list[float]
    processor: float


class Address(NamedTuple):
    """A server: its port and its process."""

    port: int
    process: int

    def processor_seconds(self) -> float:
        """Return the processor time of the server since it began; NaN where there is no /proc."""
        threads = Path(f"/proc/{self.process}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9 or math.nan


def river_app() -> Any:
    """Return an app as one writes it with FastAPI and River."""
    from fastapi import FastAPI
    from pydantic import BaseModel
    from river import linear_model, preprocessing

    class Row(BaseModel):
        x: dict[str, float]
        y: bool | None = None

    app = FastAPI()
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()

    @app.post("/infer")
    async def infer(row: Row) -> dict[str, float]:
        return {str(k): v for k, v in model.predict_proba_one(row.x).items()}

    @app.post("/learn")
    async def learn(row: Row) -> dict[str, int]:
        model.learn_one(row.x, row.y)
        return {"learned": 1}

    @app.post("/infer_many")
    async def infer_many(rows: list[Row]) -> list[dict[str, float]]:
        return [{str(k): v for k, v in model.predict_proba_one(r.x).items()} for r in rows]

    @app.post("/learn_many")
    async def learn_many(rows: list[Row]) -> dict[str, int]:
        for row in rows:
            model.learn_one(row.x, row.y)
        return {"learned": len(rows)}

    return app


@contextlib.contextmanager
def servers() -> Iterator[tuple[Address, Address]]:
    """Start both servers; yield their addresses."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        addresses = []
        obax = ["-m", "obax", "serve", folder, "--new", "classifier", "--name", "m", "--port", "0"]
        for arguments in (obax, ["-m", "benchmarks.serve", "--river"]):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, bufsize=1
                )
            )
            stack.callback(process.terminate)
            line = process.stdout.readline() if process.stdout else ""
            port = int(line.split("http://127.0.0.1:")[1].split("/")[0])
            addresses.append(Address(port, process.pid))
        yield addresses[0], addresses[1]


def run_river() -> None:
    """Serve River's app on a free port."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    config = uvicorn.Config(river_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def request(path: str, body: Any) -> bytes:
    """Return a request as it is sent."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def loads(seed: int = 0) -> list[Load]:
    """Return all kinds of requests."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((64 * BATCH, FEATURES)).round(4)
    y = (X[:, 0] > X[:, 1]).tolist()
    names = [f"x{j}" for j in range(FEATURES)]
    rows = [dict(zip(names, values, strict=True)) for values in X.tolist()]

    def tensors(begin: int, size: int) -> list[dict[str, Any]]:
        part = X[begin : begin + size].T.tolist()
        return [
            {"name": name, "shape": [size], "datatype": "FP64", "data": values}
            for name, values in zip(names, part, strict=True)
        ]

    infer, learn = "/v2/models/m/infer", "/v2/models/m/learn"
    one = [(request(infer, {"row": row}), request("/infer", {"x": row})) for row in rows[:512]]
    told = [
        (request(learn, {"row": row, "target": t}), request("/learn", {"x": row, "y": t}))
        for row, t in zip(rows[:512], y, strict=False)
    ]
    both = [pair for pairs in zip(one, told, strict=True) for pair in pairs]
    many, learned = [], []
    for begin in range(0, len(rows), BATCH):
        part, goals = rows[begin : begin + BATCH], y[begin : begin + BATCH]
        theirs = [{"x": row, "y": t} for row, t in zip(part, goals, strict=True)]
        columns = tensors(begin, BATCH)
        many.append((request(infer, {"inputs": columns}), request("/infer_many", theirs)))
        learned.append(
            (request(learn, {"inputs": columns, "targets": goals}), request("/learn_many", theirs))
        )
    both_many = [pair for pairs in zip(many, learned, strict=True) for pair in pairs]
    kinds = (
        ("infer, one row", "single", 1, one),
        ("infer + learn, one row", "single", 1, both),
        (f"infer, {BATCH} rows", "batch", BATCH, many),
        (f"infer + learn, {BATCH} rows", "batch", BATCH, both_many),
    )
    return [
        Load(name, kind, size, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        for name, kind, size, pairs in kinds
    ]


async def send(server: Address, requests: list[bytes], count: int, rows: int) -> Run:
    """Send so many requests over a few connections, each waiting for its answer."""
    numbers, latencies = iter(range(count)), []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for number in numbers:
            begun = time.perf_counter()
            writer.write(requests[number % len(requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            lines = head.lower().split(b"\r\n")
            size = next(line for line in lines if line.startswith(b"content-length:"))
            await reader.readexactly(int(size.split(b":")[1]))
            latencies.append(time.perf_counter() - begun)
        writer.close()
        await writer.wait_closed()

    begun, before = time.perf_counter(), server.processor_seconds()
    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    rate = count * rows / (time.perf_counter() - begun)
    return Run(rate, latencies, (server.processor_seconds() - before) / count)


def measure(quick: bool) -> list[dict[str, Any]]:
    """Return a line for each kind of request."""
    table = []
    with servers() as (ours, river):
        for load in loads():
            count = (2000 if load.kind == "single" else 100) // (10 if quick else 1)
            turns: list[tuple[Run, Run]] = []
            for turn in range(2 if quick else 8):
                pair = (
                    asyncio.run(send(ours, load.ours, count, load.rows)),
                    asyncio.run(send(river, load.river, count, load.rows)),
                )
                if turn:  # The first warms up.
                    turns.append(pair)
            ratio = statistics.median(a.rate / b.rate for a, b in turns)
            line: dict[str, Any] = {"requests": load.name}
            for name, runs in (("obax", [a for a, _ in turns]), ("River", [b for _, b in turns])):
                latencies = np.concatenate([run.latencies for run in runs]) * 1e3
                rate = statistics.median(run.rate for run in runs)
                p50, p99 = np.percentile(latencies, [50, 99])
                line |= {f"{name} rows/s": round(rate), f"{name} p50 ms": round(float(p50), 2)}
                processor = 1e3 * statistics.mean(run.processor for run in runs)
                line |= {f"{name} p99 ms": round(float(p99), 2)}
                line |= {f"{name} processor ms": round(processor, 3)}
            table.append(line | {"ratio": round(ratio, 2), "limit": LIMITS[load.kind]})
    return table


def main() -> None:
    """Print the table; end with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--river", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.river:
        run_river()
        return
    table = measure(arguments.quick)
    for line in table:
        print(", ".join(f"{name} {value}" for name, value in line.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1))
    missed = [line["requests"] for line in table if line["ratio"] < line["limit"]]
    if missed and not arguments.quick:
        print(f"missed: {'; '.join(missed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
