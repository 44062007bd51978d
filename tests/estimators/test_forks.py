"""Models in forked processes: no hang, nothing half written; and that the test would see both."""

import multiprocessing
import os
import subprocess
import sys
import warnings

import pytest
from states import same_numbers, state

from obax.estimators import StreamingClassifier

CODE = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of any fork beside threads
if sys.argv[1] == "without":
    os.register_at_fork = lambda **_: None  # the mutant
from obax.estimators import StreamingClassifier

model = StreamingClassifier()
for i in range(20):
    model.learn_one({"a": float(i % 3)}, i % 2)
inside = threading.Event()

def hold():
    with model.model_.lock:
        model.model_.ignored = -1  # half written
        inside.set()
        time.sleep(0.5)
        model.model_.ignored = 0

threading.Thread(target=hold, daemon=True).start()
inside.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(10 if sys.argv[1] == "with" else 1)
    model.learn_one({"a": 1.0}, 1)
    os._exit(0 if model.learned_ == 21 and model.ignored_ == 0 else 1)
status = os.waitpid(pid, 0)[1]
model.learn_one({"a": 1.0}, 1)
print("hung" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
os._exit(0)
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


@pytest.mark.parametrize(("hooks", "expected"), [("with", "0"), ("without", "hung")])
def test_fork_waits_until_other_threads_finish_their_row(hooks, expected):
    found = subprocess.run(
        [sys.executable, "-c", CODE, hooks], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == expected


def _say(model, pipe):
    model.learn_one({"a": 1.0}, 1)
    pipe.send(model.predict_proba_one({"a": 1.0}))


def test_models_in_a_child_process_are_independent():
    model = StreamingClassifier()
    for i in range(20):
        model.learn_one({"a": float(i % 3)}, i % 2)
    before = state(model)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = context.Process(target=_say, args=(model, theirs), daemon=True)
        child.start()
    assert ours.poll(30), "the child hangs"
    said = ours.recv()
    child.join(30)
    same_numbers(state(model), before)
    model.learn_one({"a": 1.0}, 1)
    assert model.predict_proba_one({"a": 1.0}) == said
