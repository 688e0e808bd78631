import os
import sys

from lltm_jit import jit
from lltm_jit.jit.loading import engine


def spec(family):
    return jit.Spec(family, (os.environ[f"FAMILY_{family}"],), ours=True)


def main():
    engine.build_all([spec(family) for family in sys.argv[2:]])  # behind `build`
