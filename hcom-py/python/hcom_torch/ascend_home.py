"""``hcom-ascend-home DIR``: an Ascend toolkit folder around the CPU library of this package.

``DIR/include`` holds the headers and ``DIR/lib64`` every library name of a CANN release, all links to one
library, for programs that are built against a toolkit and run without a card.
"""

import argparse
import shutil
import sys
from pathlib import Path

_PACKED = Path(__file__).parent / "_ascend"


def lay_out(folder: Path) -> None:
    """Makes the folder, or brings one that this command made up to date."""
    library = next((_PACKED / "lib64").glob("*.so"))
    lib64 = folder / "lib64"
    if folder.exists() and any(folder.iterdir()) and not (lib64 / library.name).exists():
        raise ValueError(f"{folder} holds something else; name a new folder")
    lib64.mkdir(parents=True, exist_ok=True)
    shutil.copytree(_PACKED / "include", folder / "include", dirs_exist_ok=True)
    fresh = lib64 / f"{library.name}.new"
    shutil.copyfile(library, fresh)
    # Replaced, not rewritten: a running program keeps the file that it mapped.
    fresh.replace(lib64 / library.name)
    for name in (_PACKED / "sonames.txt").read_text().split():
        link = lib64 / name
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="hcom-ascend-home",
        description="Lay out an Ascend toolkit folder (include/, lib64/) around the CPU library.",
        epilog="Example: hcom-ascend-home ~/ascend && ASCEND_HOME_PATH=~/ascend some-program",
    )
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder to create")
    folder = parser.parse_args().dir.expanduser().absolute()
    try:
        lay_out(folder)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"export ASCEND_HOME_PATH={folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
