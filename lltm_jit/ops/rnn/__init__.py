"""The recurrent operators: the LLTM cell and its layer."""
