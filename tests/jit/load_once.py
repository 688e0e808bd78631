"""Loads a directory through the engine in a process of its own and prints what came of it as JSON.

    python load_once.py DIRECTORY [REPEATS]

The package's own extension is not wanted here, so ``lltm_jit`` is entered without its ``__init__``.
"""

import json
import sys
import types
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
package = types.ModuleType("lltm_jit")
package.__path__ = [str(REPOSITORY / "lltm_jit")]
sys.modules["lltm_jit"] = package

from lltm_jit import jit  # noqa: E402


def main(directory, repeats="1"):
    toolchain = jit.detect()
    for _ in range(int(repeats)):
        try:
            spec = jit.BuildSpec.from_directory("_C", Path(directory), toolchain)
            build = jit.load(spec, toolchain)
        except jit.LltmJitError as error:
            result = {"error": type(error).__name__, "message": str(error)}
        else:
            text = Path(build.module.__file__).read_bytes().rpartition(b"#FAKE\n")[2].decode()
            result = {"cached": build.info.cached, "reason": build.info.reason, "text": text}
            result |= {"compiled": build.info.compiled, "reused": build.info.reused}
            result |= {"key": build.info.key}
        result["imported"] = [
            name
            for name in ("torch.utils.cpp_extension", "filelock", "dotenv", "ninja")
            if name in sys.modules
        ]
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
