"""Are there known holes in what .ci/constraints.txt pins? `python .ci/audit.py`

Asks pip-audit. 1 if it names one; 0 if there is none, and 0 with the reason in words where it
cannot ask (not installed, no network): nobody's work should stand still because a service does.
"""

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parent / "constraints.txt"
COMMAND = [
    sys.executable,
    "-m",
    "pip_audit",
    "--format",
    "json",
    "--progress-spinner",
    "off",
    "--timeout",
    "10",
]


def audit(command: list[str], seconds: float = 90) -> int:
    """Run pip-audit and judge by what it found, not by how it ended."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        packages = json.loads(run.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return _not_done(f"no answer within {seconds:.0f} s")
    except (ValueError, KeyError, TypeError):
        return _not_done((run.stderr.strip() or "no output").splitlines()[-1])
    skipped = [it for it in packages if "skip_reason" in it]
    if len(skipped) == len(packages):
        # It ends well and says "no known vulnerabilities" when it could look at nothing.
        return _not_done(skipped[0]["skip_reason"] if skipped else "nothing to look at")
    holes = [(it, hole) for it in packages for hole in it.get("vulns", ())]
    for package, hole in holes:
        fixed = ", ".join(hole.get("fix_versions", ())) or "no version yet"
        print(f"{package['name']} {package['version']}: {hole['id']}, mended in {fixed}")
    looked = len(packages) - len(skipped)
    print(f"audit: {looked} packages, {len(holes)} known holes; {len(skipped)} not known there")
    return 1 if holes else 0


def _not_done(why: str) -> int:
    print(f"audit: NOT DONE, {why}")
    return 0


if __name__ == "__main__":
    sys.exit(audit([*COMMAND, "--no-deps", "--disable-pip", "--requirement", str(CONSTRAINTS)]))
