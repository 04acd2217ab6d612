"""Writes native/sim/nvml_names.h: every NVML function name that nvidia-ml-py knows, one X(name) each.

Run it after an update of nvidia-ml-py: `python native/names.py`. It copies only names.
"""

import re
from pathlib import Path

import pynvml

HEAD = "/* Made by native/names.py from the names that nvidia-ml-py knows. */\n"


def main() -> None:
    text = Path(pynvml.__file__).read_text(encoding="utf-8")
    names = sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', text)))
    lines = " \\\n".join(f"    X({name})" for name in names)
    target = Path(__file__).parent / "sim" / "nvml_names.h"
    target.write_text(f"{HEAD}#define NVML_NAMES(X) \\\n{lines}\n", encoding="utf-8")
    print(f"{target}: {len(names)} names")


if __name__ == "__main__":
    main()
