"""The answers of each dialect, read strictly: what a client may rely on and does not find is a fault of the server."""
