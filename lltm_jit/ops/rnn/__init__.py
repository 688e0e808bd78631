"""The recurrent operators: the LLTM cell, and layers over whole sequences."""
