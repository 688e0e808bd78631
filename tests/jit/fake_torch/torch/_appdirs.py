import os


def user_cache_dir(appname):
    return os.path.join(os.path.expanduser("~/.cache"), appname)
