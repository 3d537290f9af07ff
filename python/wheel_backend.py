# SPDX-License-Identifier: MIT
"""Builds the wheel: the package's files and the shared library (PEP 517).

The shared library is the file named by ATTN_LIBRARY, or is built by CMake from the parent directory. Only Python's
standard library is used, so building needs no package from an index.
"""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
LIBRARY = "libattn.dylib" if sysconfig.get_platform().startswith("macosx") else "libattn.so"


def _setting(name):
    """Reads a setting of pyproject.toml. tomllib needs Python 3.11, and the file's lines are simple."""
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        return re.search(rf'^{name} = "([^"]*)"', file.read(), re.MULTILINE).group(1)


def _metadata():
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    return (f"Metadata-Version: 2.1\nName: {_setting('name')}\nVersion: {_setting('version')}\n"
            f"Summary: {_setting('description')}\nLicense: MIT\nRequires-Python: {_setting('requires-python')}\n"
            f"Requires-Dist: numpy (>=1.22)\nDescription-Content-Type: text/markdown\n\n{readme}")


def _tag():
    platform = os.environ.get("ATTN_WHEEL_PLATFORM")
    if platform:
        return "py3-none-" + platform
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def _library(scratch):
    """The path of the shared library, built first if none is given."""
    given = os.environ.get("ATTN_LIBRARY")
    if given:
        return os.path.realpath(given)
    if not os.path.exists(os.path.join(TREE, "CMakeLists.txt")):
        raise RuntimeError(f"{TREE} holds no CMakeLists.txt: set ATTN_LIBRARY to a built {LIBRARY}")
    subprocess.run(["cmake", "-S", TREE, "-B", scratch, "-DCMAKE_BUILD_TYPE=Release", "-DATTN_BUILD_TESTS=OFF"],
                   check=True)
    subprocess.run(["cmake", "--build", scratch, "--target", "attn_shared", "-j", str(os.cpu_count() or 1)], check=True)
    return os.path.realpath(os.path.join(scratch, LIBRARY))


class _Wheel:
    """A zip file that records its contents for RECORD."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")
        # All entries have the same date, so that equal sources give equal wheels.
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        entry.external_attr = 0o644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)

    def close(self, info):
        self.record.append(f"{info}/RECORD,,")
        self.zip.writestr(f"{info}/RECORD", "\n".join(self.record) + "\n")
        self.zip.close()


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name, version = _setting("name"), _setting("version")
    file_name, info = f"{name}-{version}-{_tag()}.whl", f"{name}-{version}.dist-info"
    scratch = tempfile.mkdtemp(prefix="attn-wheel-")
    try:
        library = _library(scratch)
        wheel = _Wheel(os.path.join(wheel_directory, file_name))
        package = os.path.join(HERE, "attn")
        entries = os.listdir(package) + [f"torch/{entry}" for entry in os.listdir(os.path.join(package, "torch"))]
        for entry in sorted(entries):
            if entry.endswith(".py") or entry == "py.typed":
                with open(os.path.join(package, entry), "rb") as file:
                    wheel.add(f"attn/{entry}", file.read())
        with open(library, "rb") as file:
            wheel.add(f"attn/{LIBRARY}", file.read())
        wheel.add(f"{info}/METADATA", _metadata().encode())
        wheel.add(f"{info}/WHEEL", (f"Wheel-Version: 1.0\nGenerator: attn\nRoot-Is-Purelib: false\n"
                                    f"Tag: {_tag()}\n").encode())
        wheel.close(info)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return file_name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the sources of the library are the whole tree; build a wheel from it")
