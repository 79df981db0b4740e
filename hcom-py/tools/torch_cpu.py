"""Installs torch into the environment whose Python runs this, without the CUDA packages.

    python torch_cpu.py VERSION

The wheel of torch on PyPI for x86-64 is linked against CUDA's libraries, several gigabytes that a CPU never
uses. The loader wants their symbols all the same, so this makes one small library that has them all, each
returning an error code, and links it under the names that are missing. Needs gcc and nm.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

NEEDED = ["filelock", "typing-extensions>=4.13", "setuptools", "sympy>=1.13.3", "networkx", "jinja2", "fsspec", "numpy"]
#: Symbols of libraries that torch names only when it was built with CUDA.
FOREIGN = re.compile(r"^(nccl|cusparseLt|nvshmem|cuFile|cudnn)|@+(NVSHMEM|lib(cublas|cublasLt|cudnn|cufft|cusolver|cusparse|nvrtc)\.so)")


def pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True
    )


def output(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def missing_symbols(folder: pathlib.Path) -> dict[str, str]:
    """Name -> version, of what torch's libraries expect from CUDA's."""
    found = {}
    for library in folder.glob("lib*.so"):
        for line in output("nm", "-D", "--undefined-only", str(library)).splitlines():
            symbol = line.split()[-1]
            if FOREIGN.search(symbol):
                name, _, version = symbol.partition("@")
                found[name] = version.lstrip("@")
    return found


def stand_in(folder: pathlib.Path, symbols: dict[str, str]) -> None:
    """Builds the library and links it under every name that the loader does not find."""
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "symbols.c"), pathlib.Path(scratch, "versions.map")
        lines = [
            f"char {name}[64];" if name == "nvshmem_selected_device_transport" else f"int {name}(void) {{ return 1; }}"
            for name in sorted(symbols)
        ]
        source.write_text("\n".join(lines) + "\n")
        versions: dict[str, list[str]] = {}
        for name, version in symbols.items():
            if version:
                versions.setdefault(version, []).append(name)
        script.write_text("".join(f"{v} {{ global: {'; '.join(sorted(n))}; }};\n" for v, n in versions.items()))
        target = folder / "libnocuda.so"
        command = ["gcc", "-O1", "-shared", "-fPIC", "-w", "-fno-builtin", "-Wl,-soname,libnocuda.so"]
        if versions:
            command.append(f"-Wl,--version-script,{script}")
        subprocess.run([*command, "-o", str(target), str(source)], check=True)
    for library in list(folder.glob("lib*.so")):
        for line in output("ldd", str(library)).splitlines():
            name, _, rest = line.strip().partition(" => ")
            if rest == "not found" and not name.startswith("libcuda.so") and not (folder / name).exists():
                os.symlink("libnocuda.so", folder / name)


def main() -> None:
    version = sys.argv[1]
    cuda = "13" if tuple(map(int, version.split(".")[:2])) >= (2, 11) else "12"
    suffix = "" if cuda == "13" else "-cu12"
    pip("--no-deps", f"torch=={version}", f"nvidia-cuda-runtime{suffix}=={cuda}.*", f"nvidia-cuda-cupti{suffix}=={cuda}.*")
    pip(*NEEDED)
    found = importlib.util.find_spec("torch")
    folder = pathlib.Path(found.origin).parent / "lib"
    if not (folder / "libnocuda.so").exists():
        stand_in(folder, missing_symbols(folder))
    check = "import torch, torch.distributed as d; assert d.is_gloo_available(); print('torch', torch.__version__)"
    subprocess.run([sys.executable, "-c", check], check=True)


if __name__ == "__main__":
    main()
