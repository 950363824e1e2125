"""The HTTP server: thin routes over the wire codecs."""
